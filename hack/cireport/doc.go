// Command cireport says where the time of a run of CI went:
//
//	cireport FOLDER
//
// The folder has a file stages, a line for each stage: result, seconds and name, with tabs between;
// and files *.json with the events of `go test -json`. With LAYERWRIGHT_CI_REPORT the figures are
// also written to that file, as JSON.
package main

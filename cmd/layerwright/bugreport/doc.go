// Package bugreport packs what a bug report needs into an archive: objects, events, logs, versions.
//
// Rule: no Secret is read. What may hold a secret leaves no content in the archive unless the
// caller asks for it: files and units of MachineConfigs, Containerfiles, values of ConfigMaps and
// of environment variables, and what URLs say of users and their queries. What could not be read is
// in the archive as such.
package bugreport

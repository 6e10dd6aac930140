package sbom

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"
)

const (
	// namespace begins the names of documents.
	namespace = "https://layerwright.io/spdx/release/"
	// notSaid is how SPDX says that a document does not say it.
	notSaid = "NOASSERTION"
)

// Subject is what an SBOM is about: an image, or an archive of programs.
type Subject struct {
	// Name and Version are those of the release, Digest of the image or archive as "sha256:...",
	// and PackageURL what others call it.
	Name, Version, Digest, PackageURL string
	Created                           time.Time
	Programs                          []Program
	// Others is what is in it beside Go modules.
	Others []Other
}

// Program is a program on this machine, and the platform that it is for.
type Program struct{ Path, Platform string }

// Other is a package of Debian.
type Other struct{ Name, Version, Comment string }

// Make makes the document, in SPDX 2.3 as JSON.
func Make(about Subject) ([]byte, error) {
	d := newDocument(about)
	for _, program := range about.Programs {
		if err := d.addProgram(program, about.Version); err != nil {
			return nil, fmt.Errorf("making the SBOM of %q: program %q: %w", about.Name, program.Path, err)
		}
	}
	for _, other := range about.Others {
		d.addOther(other)
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(&d.Document); err != nil {
		return nil, fmt.Errorf("making the SBOM of %q: %w", about.Name, err)
	}
	return text.Bytes(), nil
}

type document struct {
	spdx.Document
	root common.ElementID
	// modules are those that it has already.
	modules map[common.ElementID]bool
}

func newDocument(about Subject) *document {
	hexadecimal := strings.TrimPrefix(about.Digest, "sha256:")
	d := &document{root: "Release", modules: map[common.ElementID]bool{}}
	d.Document = spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT", DocumentName: about.Name + " " + about.Version,
		DocumentNamespace: namespace + about.Name + "-" + about.Version + "-" + hexadecimal,
		CreationInfo: &spdx.CreationInfo{
			Creators: []common.Creator{{CreatorType: "Tool", Creator: "layerwright-release"}}, Created: about.Created.UTC().Format(time.RFC3339),
		},
	}
	root := newPackage(d.root, about.Name, about.Version, about.PackageURL)
	root.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: hexadecimal}}
	d.Packages = append(d.Packages, root)
	d.relate(d.SPDXIdentifier, common.TypeRelationshipDescribe, d.root)
	return d
}

func (d *document) addProgram(program Program, version string) error {
	info, err := buildinfo.ReadFile(program.Path)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(program.Path)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(content)
	name := filepath.Base(program.Path)
	p := newPackage(elementID("Program", name, program.Platform), name, version, "pkg:golang/"+info.Path+"@"+version)
	p.PackageComment = "The program for " + program.Platform + "."
	p.PrimaryPackagePurpose = "APPLICATION"
	p.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: hex.EncodeToString(sum[:])}}
	d.Packages = append(d.Packages, p)
	d.relate(d.root, common.TypeRelationshipContains, p.PackageSPDXIdentifier)
	modules := append(slices.Clone(info.Deps), &debug.Module{Path: "stdlib", Version: strings.TrimPrefix(info.GoVersion, "go")})
	for _, module := range modules {
		if module.Replace != nil {
			module = module.Replace
		}
		id := elementID("Module", module.Path, module.Version)
		if !d.modules[id] {
			d.modules[id] = true
			d.Packages = append(d.Packages, newPackage(id, module.Path, module.Version, "pkg:golang/"+module.Path+"@"+module.Version))
		}
		d.relate(p.PackageSPDXIdentifier, common.TypeRelationshipDependsOn, id)
	}
	return nil
}

func (d *document) addOther(other Other) {
	p := newPackage(elementID("Debian", other.Name, other.Version), other.Name, other.Version, "pkg:deb/debian/"+other.Name+"@"+other.Version)
	p.PackageComment = other.Comment
	d.Packages = append(d.Packages, p)
	d.relate(d.root, common.TypeRelationshipContains, p.PackageSPDXIdentifier)
}

func (d *document) relate(from common.ElementID, how string, to common.ElementID) {
	d.Relationships = append(d.Relationships, &spdx.Relationship{
		RefA: common.DocElementID{ElementRefID: from}, RefB: common.DocElementID{ElementRefID: to}, Relationship: how,
	})
}

func newPackage(id common.ElementID, name, version, url string) *spdx.Package {
	return &spdx.Package{
		PackageName: name, PackageSPDXIdentifier: id, PackageVersion: version, PackageDownloadLocation: notSaid,
		PackageLicenseConcluded: notSaid, PackageLicenseDeclared: notSaid, PackageCopyrightText: notSaid,
		PackageExternalReferences: []*spdx.PackageExternalReference{
			{Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL, Locator: strings.ReplaceAll(url, "+", "%2B")},
		},
	}
}

// elementID is an identifier of SPDX: short, and another one for each name and version.
func elementID(kind, name, version string) common.ElementID {
	const characters = 20
	sum := sha256.Sum256([]byte(name + "\n" + version))
	return common.ElementID(kind + "-" + hex.EncodeToString(sum[:])[:characters])
}

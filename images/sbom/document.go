package sbom

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/osimage/packages"
)

// maxDocument is the size of the largest document, in bytes. It has room for some 9000 packages,
// twice as many as large systems have altogether. What is attached to images may be larger; but it
// is in memory several times on its way there.
const maxDocument = 8_000_000

// namespace begins the names of documents. The digest of the image follows.
const namespace = "https://layerwright.io/spdx/"

// scope is what a document says about itself.
const scope = "What the image has beyond its base image, as far as package managers know it: the packages that the databases of rpm and dpkg in " +
	"the image list, and those of the base image do not, or in another version. Not listed here: the packages of the base image, which has an SBOM " +
	"of its own or none; and what no package manager has installed, such as files that were copied or downloaded, modules of " +
	"programming languages, and the configuration of the machines. No one has compared the files with what packages should have. Licenses are as " +
	"the packages declare them; databases of dpkg declare none."

// document is an SBOM that is being made.
type document struct {
	spdx.Document
	creator common.Creator
	created string
	// repository is the image's, by name.
	repository string
	// root is the list of the images of several platforms; empty where the image is a single one.
	root     common.ElementID
	licenses map[string]string
	// size is that of what was added, in bytes.
	size int
}

func newDocument(about Subject, version string) (*document, error) {
	if len(about.Platforms) == 0 {
		return nil, errNoPlatform
	}
	repository, digest, _ := strings.Cut(about.Image, "@")
	hash, err := v1.NewHash(digest)
	if err != nil {
		return nil, fault.NewTerminal(mcfgv1.ReasonInvalid, fmt.Errorf("its digest: %w", err))
	}
	d := &document{
		creator: common.Creator{CreatorType: "Tool", Creator: "layerwright-" + version}, created: about.Created.UTC().Format(time.RFC3339),
		repository: repository, licenses: map[string]string{},
	}
	d.Document = spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT", DocumentName: about.Image,
		DocumentNamespace: namespace + hash.Algorithm + "-" + hash.Hex, DocumentComment: scope,
		CreationInfo: &spdx.CreationInfo{Creators: []common.Creator{d.creator}, Created: d.created},
	}
	if len(about.Platforms) == 1 && about.Platforms[0].Digest == hash {
		return d, nil
	}
	d.root = "Image"
	list := imagePackage(d.root, repository, hash, "")
	list.PackageComment = "The list of the images of all platforms."
	if err := d.addPackage(list); err != nil {
		return nil, err
	}
	if err := d.relate(d.SPDXIdentifier, common.TypeRelationshipDescribe, d.root); err != nil {
		return nil, err
	}
	return d, nil
}

// add takes in the image of one platform.
func (d *document) add(p *Platform, found *examined) error {
	platform := p.Platform.OS + "-" + p.Platform.Architecture
	if p.Platform.Variant != "" {
		platform += "-" + p.Platform.Variant
	}
	id, baseID := elementID("Image-"+platform, p.Digest.String()), elementID("BaseImage-"+platform, found.base.String())
	image, base := imagePackage(id, d.repository, p.Digest, p.Platform.Architecture), imagePackage(baseID, found.baseName, found.base, p.Platform.Architecture)
	image.PackageComment = "The image for " + p.Platform.String() + ". " + found.summary()
	base.PackageComment = "The base image for " + p.Platform.String() + ". Its own packages are not listed here."
	notes := 0
	for _, r := range found.changes.removed {
		text := "Removed, the base image has it: " + packageURL(r, found.release)
		image.Annotations = append(image.Annotations, d.note(text))
		if notes += len(text); notes > maxDocument {
			return tooLarge()
		}
	}
	for _, kind := range found.changes.unknown {
		image.Annotations = append(image.Annotations, d.note("The base image has a database of "+kind+
			" packages, and the image has none: which of the base image's packages it still has is not known."))
	}
	for _, element := range []*spdx.Package{image, base} {
		if err := d.addPackage(element); err != nil {
			return err
		}
	}
	from, how := d.SPDXIdentifier, common.TypeRelationshipDescribe
	if d.root != "" {
		from, how = d.root, common.TypeRelationshipContains
	}
	if err := d.relate(from, how, id); err != nil {
		return err
	}
	if err := d.relate(id, common.TypeRelationshipDescendantOf, baseID); err != nil {
		return err
	}
	for _, c := range found.changes.added {
		element := d.installed(platform, c, found.release)
		if err := d.addPackage(element); err != nil {
			return err
		}
		if err := d.relate(id, common.TypeRelationshipContains, element.PackageSPDXIdentifier); err != nil {
			return err
		}
	}
	return nil
}

// summary says what was looked at.
func (e *examined) summary() string {
	var text string
	switch {
	case e.untouched:
		text = "The layers above the base image leave its package databases, if it has any, as they are."
	case len(e.databases) == 0:
		text = "It has no package database of a kind that is known."
	default:
		text = "Its package databases are " + strings.Join(e.databases, ", ") + "."
	}
	return text + fmt.Sprintf(" %d of its files are from layers above the base image, whether packages have installed them or not.", e.files)
}

// imagePackage is an image as a package.
func imagePackage(id common.ElementID, repository string, digest v1.Hash, arch string) *spdx.Package {
	p := &spdx.Package{
		PackageName: repository, PackageSPDXIdentifier: id, PackageVersion: digest.String(), PackageDownloadLocation: notSaid,
		PackageLicenseConcluded: notSaid, PackageLicenseDeclared: notSaid, PackageCopyrightText: notSaid, PrimaryPackagePurpose: "CONTAINER",
	}
	if repository == "" {
		p.PackageName = "base image"
	}
	if algorithm, known := checksums()[digest.Algorithm]; known {
		p.PackageChecksums = []common.Checksum{{Algorithm: algorithm, Value: digest.Hex}}
	}
	if url := imageURL(repository, digest.String(), arch); url != "" {
		p.PackageExternalReferences = []*spdx.PackageExternalReference{reference(url)}
	}
	return p
}

func checksums() map[string]common.ChecksumAlgorithm {
	return map[string]common.ChecksumAlgorithm{"sha256": common.SHA256, "sha512": common.SHA512}
}

func reference(url string) *spdx.PackageExternalReference {
	return &spdx.PackageExternalReference{Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL, Locator: url}
}

// installed is a package of the image.
func (d *document) installed(platform string, c change, release map[string]string) *spdx.Package {
	license, extracted := declaredLicense(c.License)
	maps.Copy(d.licenses, extracted)
	p := &spdx.Package{
		PackageName:             clean(c.Name),
		PackageSPDXIdentifier:   elementID("Package-"+platform+"-"+c.Name, fmt.Sprintf("%q", c.Package)),
		PackageVersion:          clean(c.Version),
		PackageDownloadLocation: notSaid,
		PackageSourceInfo:       sourceOf(c.Package),
		PackageLicenseConcluded: notSaid, PackageLicenseDeclared: license, PackageCopyrightText: notSaid,
		PackageExternalReferences: []*spdx.PackageExternalReference{reference(packageURL(c.Package, release))},
	}
	if len(c.before) > 0 {
		p.PackageComment = "The base image has version " + clean(strings.Join(c.before, ", ")) + "."
	}
	return p
}

func sourceOf(p packages.Package) string {
	switch {
	case p.Source == "":
		return ""
	case p.Type == packages.RPM:
		return "built from the source package " + clean(p.Source)
	case p.SourceVersion != "":
		return "built from the source package " + clean(p.Source+" "+p.SourceVersion)
	}
	return "built from the source package " + clean(p.Source+" "+p.Version)
}

// note is an annotation.
func (d *document) note(text string) spdx.Annotation {
	return spdx.Annotation{
		Annotator:      common.Annotator{AnnotatorType: d.creator.CreatorType, Annotator: d.creator.Creator},
		AnnotationDate: d.created, AnnotationType: "OTHER", AnnotationComment: text,
	}
}

func (d *document) addPackage(p *spdx.Package) error {
	d.Packages = append(d.Packages, p)
	return d.grow(p)
}

func (d *document) relate(from common.ElementID, how string, to common.ElementID) error {
	r := &spdx.Relationship{RefA: common.DocElementID{ElementRefID: from}, RefB: common.DocElementID{ElementRefID: to}, Relationship: how}
	d.Relationships = append(d.Relationships, r)
	return d.grow(r)
}

// grow counts what is added, so that a document that gets too large ends early.
func (d *document) grow(element any) error {
	text, err := json.Marshal(element)
	if err != nil {
		return fmt.Errorf("writing a document of SPDX: %w", err)
	}
	if d.size += len(text); d.size > maxDocument {
		return tooLarge()
	}
	return nil
}

func tooLarge() error {
	return fault.NewTerminal(mcfgv1.ReasonInvalid, &TooLargeError{Limit: maxDocument})
}

// encode is the document as JSON.
func (d *document) encode() ([]byte, error) {
	for _, id := range slices.Sorted(maps.Keys(d.licenses)) {
		d.OtherLicenses = append(d.OtherLicenses, &spdx.OtherLicense{LicenseIdentifier: id, ExtractedText: d.licenses[id], LicenseName: notSaid})
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(&d.Document); err != nil {
		return nil, fmt.Errorf("writing a document of SPDX: %w", err)
	}
	if text.Len() > maxDocument {
		return nil, tooLarge()
	}
	return text.Bytes(), nil
}

// elementID is an identifier of SPDX: the name as far as its letters may be in one, and a hash of
// what it is for.
func elementID(name, of string) common.ElementID {
	const longest, hashed = 64, 8
	sum := sha256.Sum256([]byte(name + "\n" + of))
	readable := strings.Map(func(r rune) rune {
		if r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r) || r == '.' || r == '-') {
			return r
		}
		return '-'
	}, name[:min(len(name), longest)])
	return common.ElementID(readable + "-" + hex.EncodeToString(sum[:hashed]))
}

// clean is a text for people: valid, in one line, and not too long. Package URLs have all bytes as
// they are.
func clean(text string) string {
	const longest = 1024
	text = text[:min(len(text), longest*utf8.UTFMax+1)]
	runes := []rune(strings.ToValidUTF8(text, string(unicode.ReplacementChar)))
	for i, r := range runes {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			runes[i] = unicode.ReplacementChar
		}
	}
	if len(runes) > longest {
		return string(runes[:longest]) + "…"
	}
	return string(runes)
}

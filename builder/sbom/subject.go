package sbom

import (
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Subject is the image that a bill of materials is about.
type Subject struct {
	// Image is the image by digest: a single image, or the list of those of several platforms.
	Image string
	// Created is the time that the document says it was made at.
	Created time.Time
	// Platforms are the image's, at least one.
	Platforms []Platform
}

// Platform is the image for one platform.
type Platform struct {
	Platform v1.Platform
	// Digest is that of the platform's manifest.
	Digest v1.Hash
	// Base is the base image for the platform, and Image what was built on it.
	Base, Image v1.Image
}

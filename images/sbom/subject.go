package sbom

import (
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Subject is the image that an SBOM is about.
type Subject struct {
	// Image is the image by its digest.
	Image string
	// Created is when it was made.
	Created time.Time
	// Platforms are the images that it consists of.
	Platforms []Platform
}

// Platform is the image of one platform.
type Platform struct {
	Platform v1.Platform
	// Digest is that of its manifest.
	Digest v1.Hash
	// Base is the image that it was made from, and Image the image itself.
	Base, Image v1.Image
}

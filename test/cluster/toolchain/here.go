package toolchain

import "context"

// FindHere is the folder with the programs of a set that the repository of the working directory
// has built, by `make tools`.
func FindHere(ctx context.Context, set Set) (bin string, err error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	root, err := RepositoryRoot(".")
	if err != nil {
		return "", err
	}
	return New(root, cache).Find(ctx, set)
}

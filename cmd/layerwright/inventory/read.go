package inventory

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"strings"
	"sync"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sync/errgroup"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/internal/registry"
)

// atOnce is how many images the registry is asked for at a time.
const atOnce = 8

// Read adds what the registry says: the tags of the pool, sizes, and images that the cluster does
// not know. Problems say what could not be read; then no tag or size of it is known. The registry
// itself is the error.
func (v *Inventory) Read(ctx context.Context, from *registry.Client) (problems []string, err error) {
	if err := v.readTags(ctx, from); err != nil {
		return nil, err
	}
	var lock sync.Mutex
	note := func(err error) {
		lock.Lock()
		defer lock.Unlock()
		problems = append(problems, err.Error())
	}
	have := &content{}
	if v.ComparedWith != "" {
		if have, err = read(ctx, from, v.ComparedWith); err != nil {
			note(err)
		}
	}
	group := errgroup.Group{}
	group.SetLimit(atOnce)
	for i := range v.Images {
		group.Go(func() error {
			found, err := read(ctx, from, v.Images[i].Image)
			if err != nil {
				note(err)
				return nil
			}
			v.Images[i].add(found, have)
			return nil
		})
	}
	_ = group.Wait() // no image is an error
	slices.Sort(problems)
	return slices.Compact(problems), nil
}

// readTags finds what the tags of the pool stand for.
func (v *Inventory) readTags(ctx context.Context, from *registry.Client) error {
	if v.Repository == "" {
		return nil
	}
	tags, err := from.Tags(ctx, v.Repository)
	if err != nil {
		return err
	}
	tags = slices.DeleteFunc(tags, func(tag string) bool { return !isOf(v.Pool, tag) })
	slices.SortFunc(tags, func(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) })
	digests := make([]string, len(tags))
	group, asking := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i, tag := range tags {
		group.Go(func() error {
			digest, found, err := from.Exists(asking, v.Repository, tag)
			if found {
				digests[i] = digest.String()
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i, tag := range tags {
		if digests[i] != "" {
			v.addTag(tag, mcfgv1.ImageDigestFormat(v.Repository+"@"+digests[i]))
		}
	}
	return nil
}

func (v *Inventory) addTag(tag string, pinned mcfgv1.ImageDigestFormat) {
	i := slices.IndexFunc(v.Images, func(image Image) bool { return image.Image == pinned })
	if i < 0 {
		i = len(v.Images)
		v.Images = append(v.Images, Image{Image: pinned})
	}
	v.Images[i].Tags = append(v.Images[i].Tags, tag)
}

// key is what a build key looks like.
var key = regexp.MustCompile(`^[0-9a-f]{32}$`)

// isOf reports whether Layerwright gives a tag to images of a pool. The repository may have images
// of other pools, whose names may begin alike.
func isOf(pool, tag string) bool {
	for number := 2; number <= names.MaxTags; number++ {
		tag = strings.TrimSuffix(tag, names.NextTag("", number))
	}
	last := tag[strings.LastIndex(tag, "-")+1:]
	return tag == names.PoolTag(pool) || tag == names.TrialTag(pool) || key.MatchString(last) && tag == names.ImageTag(pool, last)
}

// content is what manifest and config of an image say: the sizes of the layers by digest, for each
// architecture.
type content struct {
	layers map[string]map[v1.Hash]int64
	labels map[string]string
}

func read(ctx context.Context, from *registry.Client, image mcfgv1.ImageDigestFormat) (*content, error) {
	c := &content{layers: map[string]map[v1.Hash]int64{}}
	resolved, err := from.Resolve(ctx, string(image))
	if err != nil {
		return c, err
	}
	for _, platform := range resolved.EachPlatform() {
		opened, err := from.Image(ctx, string(image), platform)
		if err != nil {
			return c, err
		}
		config, err := opened.ConfigFile()
		if err != nil {
			return c, err
		}
		manifest, err := opened.Manifest()
		if err != nil {
			return c, err
		}
		c.labels = config.Config.Labels
		sizes := map[v1.Hash]int64{}
		for i := range manifest.Layers {
			sizes[manifest.Layers[i].Digest] = manifest.Layers[i].Size
		}
		c.layers[config.Architecture] = sizes
	}
	return c, nil
}

// add takes over what the image itself says, and what a node pulls that has another one. The
// objects of the cluster know better what it was made of.
func (i *Image) add(found, have *content) {
	var size, pull int64
	isComparable := len(have.layers) > 0
	for architecture, layers := range found.layers {
		before, has := have.layers[architecture]
		isComparable = isComparable && has
		var all, missing int64
		for digest, bytes := range layers {
			all += bytes
			if _, has := before[digest]; !has {
				missing += bytes
			}
		}
		size, pull = max(size, all), max(pull, missing)
	}
	i.Size = &size
	if isComparable {
		i.Pull = &pull
	}
	i.Stream = cmp.Or(i.Stream, found.labels[mcfgv1.ImageLabelStream])
	i.BuildKey = cmp.Or(i.BuildKey, found.labels[mcfgv1.ImageLabelBuildKey])
	i.Base = cmp.Or(i.Base, mcfgv1.ImageDigestFormat(found.labels[mcfgv1.ImageLabelBaseImage]))
}

module github.com/layerwright/layerwright/hack/cluster/pause

go 1.26.0

package main

import (
	"context"
	"sync"
	"time"

	"github.com/google/trillian"
	"github.com/google/trillian/storage"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// once is a log storage that takes a leaf once, as the databases do: that in memory alone does not
// look.
type once struct {
	storage.LogStorage

	mu   sync.Mutex
	seen map[string]*trillian.LogLeaf
}

// QueueLeaves queues the leaves that it has not seen, and says of others that they exist already.
func (o *once) QueueLeaves(ctx context.Context, tree *trillian.Tree, leaves []*trillian.LogLeaf, at time.Time) ([]*trillian.QueuedLogLeaf, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	result := make([]*trillian.QueuedLogLeaf, 0, len(leaves))
	for _, leaf := range leaves {
		id := string(leaf.LeafIdentityHash)
		if before, is := o.seen[id]; is {
			result = append(result, &trillian.QueuedLogLeaf{Leaf: before, Status: status.New(codes.AlreadyExists, "leaf already exists").Proto()})
			continue
		}
		queued, err := o.LogStorage.QueueLeaves(ctx, tree, []*trillian.LogLeaf{leaf}, at)
		if err != nil {
			return nil, err
		}
		o.seen[id] = leaf
		result = append(result, queued...)
	}
	return result, nil
}

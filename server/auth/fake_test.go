package auth

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"orrery.dev/server/fake"
)

// fakeStore is a Store and a Source in memory.
type fakeStore struct{ *fake.Store }

func newFakeStore() *fakeStore { return &fakeStore{fake.New()} }

func (s *fakeStore) Follow(ctx context.Context, resource schema.GroupResource, apply func([]Change, bool)) error {
	var first []Change
	all, _ := s.List(ctx, resource, "")
	for _, o := range all {
		first = append(first, Change{Object: o})
	}
	apply(first, true)
	<-ctx.Done()
	return ctx.Err()
}

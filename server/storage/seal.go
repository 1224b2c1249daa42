package storage

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
)

// Values may be encrypted in etcd (Options.Transformers). To seal is to make of
// an encoded object what is stored, to unseal the way back. The key goes into
// the seal, so that nobody can put one object's value in another's place.

// sealedError says that a value cannot be unsealed: the key for it is missing,
// or whoever keeps it does not answer. Unlike a value that makes no sense, it may
// well be readable a moment later.
type sealedError struct {
	key string
	err error
}

func (e *sealedError) Error() string {
	return fmt.Sprintf("unable to transform key %q: %v", e.key, e.err)
}
func (e *sealedError) Unwrap() error { return e.err }

func isSealed(err error) bool {
	var sealed *sealedError
	return errors.As(err, &sealed)
}

// transformer seals a resource's values. Without a configuration it stores them
// as they are, and refuses those that are sealed.
func (o *Options) transformer(gr schema.GroupResource) value.Transformer {
	if o.Transformers == nil {
		return identity.NewEncryptCheckTransformer()
	}
	return o.Transformers.TransformerForResource(gr)
}

func (c *Collection) seal(ctx context.Context, key string, plain []byte) ([]byte, error) {
	sealed, err := c.transformer.TransformToStorage(ctx, plain, value.DefaultContext(key))
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	return sealed, nil
}

// decodeItem makes an Item of a key's value. outdated says that the value is to
// be written again, even unchanged: its seal is not the one that new values get.
func (c *Collection) decodeItem(ctx context.Context, kv KV) (item *Item, outdated bool, err error) {
	kv.Value, outdated, err = c.transformer.TransformFromStorage(ctx, kv.Value, value.DefaultContext(kv.Key))
	if err != nil {
		return nil, false, &sealedError{kv.Key, err}
	}
	item, err = c.resource.decodeItem(kv)
	return item, outdated, err
}

// reload begins a new load of a collection some of whose changes cannot be
// unsealed. To take them for deletions would be a lie with consequences: whoever
// watches would act on it. Until the load succeeds, which it tries again and
// again, reads go to etcd one by one.
func (s *Store) reload(c *Collection) {
	s.mu.RLock()
	loader := s.loader
	s.mu.RUnlock()
	if loader != nil {
		loader(c)
	}
}

// markSealed remembers that loads fail for want of a key.
func (c *Collection) markSealed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sealed = true
}

func (c *Collection) isSealed() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.sealed
}

// holdSealed keeps changes for the load that is being tried, without looking
// into them: to ask for a key may take seconds each time, and the watch, which
// all collections share, must not wait. It reports false if there is no need.
func (c *Collection) holdSealed(changes []Change) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.sealed || c.synced {
		return false
	}
	for _, ch := range changes {
		c.held = append(c.held, prepared{Change: ch})
	}
	return true
}

// unsealHeld looks into what holdSealed kept. Caller holds mu.
func (c *Collection) unsealHeld() error {
	for n := range c.held {
		p := &c.held[n]
		if p.Deleted || p.item != nil || p.err != nil {
			continue
		}
		p.item, _, p.err = c.decodeItem(context.Background(), p.KV)
		if isSealed(p.err) {
			err := p.err
			p.err = nil
			return err
		}
	}
	return nil
}

package encryption

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/apis/apiserver"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
)

// set is one configuration at work.
type set struct {
	byResource map[schema.GroupResource]value.Transformer
	plugins    []*plugin
	stop       context.CancelFunc // closes the connections to the plugins
}

// parse reads a configuration file.
func parse(raw []byte, reload bool) (*apiserver.EncryptionConfiguration, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(apiserver.AddToScheme(scheme), apiserverv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	obj, kind, err := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder().Decode(raw, nil, nil)
	if err != nil {
		return nil, err
	}
	config, ok := obj.(*apiserver.EncryptionConfiguration)
	if !ok {
		return nil, fmt.Errorf("got unexpected config type: %v", kind)
	}
	return config, validation.ValidateEncryptionConfiguration(config, reload).ToAggregate()
}

// newSet makes the providers of a configuration.
func newSet(config *apiserver.EncryptionConfiguration, serverID string) (*set, error) {
	ctx, stop := context.WithCancel(context.Background())
	s := &set{byResource: map[schema.GroupResource]value.Transformer{}, stop: stop}
	all := map[schema.GroupResource][]value.PrefixTransformer{}
	for _, rule := range config.Resources {
		providers, err := s.providers(ctx, rule.Providers, serverID)
		if err != nil {
			stop()
			return nil, err
		}
		for _, name := range rule.Resources {
			gr := schema.ParseGroupResource(name)
			for _, wider := range []schema.GroupResource{{Group: gr.Group, Resource: "*"}, everything} {
				if all[wider] != nil {
					stop()
					return nil, fmt.Errorf("resource %q is masked by earlier rule %q", shown(gr), shown(wider))
				}
			}
			all[gr] = append(all[gr], providers...)
		}
	}
	for gr, providers := range all {
		s.byResource[gr] = value.NewPrefixTransformers(fmt.Errorf("no matching prefix found"), providers...)
	}
	return s, nil
}

// everything is the rule "*.*".
var everything = schema.GroupResource{Group: "*", Resource: "*"}

// shown is a resource as the file has it.
func shown(gr schema.GroupResource) string {
	if gr.Group == "" && gr.Resource == "*" {
		return "*."
	}
	return gr.String()
}

// transformer is by the rule for the resource, its group or everything; what no
// rule names is stored as it is.
func (s *set) transformer(gr schema.GroupResource) value.Transformer {
	for _, rule := range []schema.GroupResource{gr, {Group: gr.Group, Resource: "*"}, everything} {
		if t := s.byResource[rule]; t != nil {
			return t
		}
	}
	return identity.NewEncryptCheckTransformer()
}

// check asks the plugins how they are, one after the other.
func (s *set) check(ctx context.Context) error {
	var errs []error
	for n, p := range s.plugins {
		if err := p.check(ctx); err != nil {
			errs = append(errs, fmt.Errorf("kms-provider-%d: %w", n, err))
		}
	}
	return errors.Join(errs...)
}

// keep looks after the plugins until ctx ends, and closes the set.
func (s *set) keep(ctx context.Context, log *slog.Logger) {
	defer s.stop()
	var running sync.WaitGroup
	defer running.Wait()
	for _, p := range s.plugins {
		running.Go(func() { p.keep(ctx, log) })
	}
	<-ctx.Done()
}

// grace is how long a set that was replaced may still be in use.
func (s *set) grace() time.Duration {
	var all time.Duration
	for _, p := range s.plugins {
		all += p.timeout
	}
	return 2 * all
}

// resourceTransformer seals by the set in force.
type resourceTransformer struct {
	encryption *Encryption
	resource   schema.GroupResource
}

// TransformFromStorage implements value.Transformer.
func (r *resourceTransformer) TransformFromStorage(ctx context.Context, data []byte, where value.Context) ([]byte, bool, error) {
	return r.encryption.now.Load().transformer(r.resource).TransformFromStorage(ctx, data, where)
}

// TransformToStorage implements value.Transformer.
func (r *resourceTransformer) TransformToStorage(ctx context.Context, data []byte, where value.Context) ([]byte, error) {
	return r.encryption.now.Load().transformer(r.resource).TransformToStorage(ctx, data, where)
}

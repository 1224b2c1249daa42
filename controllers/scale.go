package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

const (
	// kindsLook is how often the scaler asks anew which kinds there are.
	kindsLook = 30 * time.Second
	// kindsMissed is the same when one that is asked for is missing.
	kindsMissed = 2 * time.Second
)

// scaler reads and sets the scale of any workload, custom ones included.
type scaler struct {
	*env
	mu    sync.Mutex // protects the fields below
	kinds map[schema.GroupVersionKind]schema.GroupVersionResource
	asked time.Time
}

func newScaler(e *env) *scaler { return &scaler{env: e} }

// resource finds the resource of a kind.
func (s *scaler) resource(apiVersion, kind string) (schema.GroupVersionResource, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gvk := schema.FromAPIVersionAndKind(apiVersion, kind)
	if gvr, ok := s.kinds[gvk]; ok {
		return gvr, nil
	}
	if err := s.look(kindsLook); err != nil {
		return schema.GroupVersionResource{}, err
	}
	if gvr, ok := s.kinds[gvk]; ok {
		return gvr, nil
	}
	return schema.GroupVersionResource{}, fmt.Errorf("no matches for kind %q in version %q", kind, apiVersion)
}

// byResource finds the served version of a resource.
func (s *scaler) byResource(gr schema.GroupResource) (schema.GroupVersionResource, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, age := range []time.Duration{kindsLook, kindsMissed} {
		if err := s.look(age); err != nil {
			return schema.GroupVersionResource{}, err
		}
		for _, gvr := range s.kinds {
			if gvr.GroupResource() == gr {
				return gvr, nil
			}
		}
	}
	return schema.GroupVersionResource{}, fmt.Errorf("no resource %s", gr)
}

// look asks the server for its kinds, unless that was less than an age ago; mu is
// held.
func (s *scaler) look(age time.Duration) error {
	if time.Since(s.asked) < age {
		return nil
	}
	_, lists, err := s.clients.Discovery().ServerGroupsAndResources()
	if err != nil && len(lists) == 0 {
		return fmt.Errorf("discovery: %w", err)
	}
	s.asked, s.kinds = time.Now(), map[schema.GroupVersionKind]schema.GroupVersionResource{}
	for _, d := range deletableResources(lists) {
		s.kinds[d.gvr.GroupVersion().WithKind(d.kind)] = d.gvr
	}
	return nil
}

// get reads the scale subresource of an object.
func (s *scaler) get(ctx context.Context, namespace, apiVersion, kind, name string) (*autoscalingv1.Scale, schema.GroupVersionResource, error) {
	gvr, err := s.resource(apiVersion, kind)
	if err != nil {
		return nil, gvr, err
	}
	data, err := s.raw().Get().AbsPath(scalePath(gvr, namespace, name)...).SetHeader("Accept", "application/json").DoRaw(ctx)
	if err != nil {
		return nil, gvr, fmt.Errorf("scale of %s %s/%s: %w", gvr.Resource, namespace, name, err)
	}
	scale := &autoscalingv1.Scale{}
	if err := json.Unmarshal(data, scale); err != nil {
		return nil, gvr, fmt.Errorf("scale of %s %s/%s: %w", gvr.Resource, namespace, name, err)
	}
	return scale, gvr, nil
}

// set writes the size of an object.
func (s *scaler) set(ctx context.Context, gvr schema.GroupVersionResource, scale *autoscalingv1.Scale, replicas int32) error {
	changed := scale.DeepCopy()
	changed.TypeMeta = metav1.TypeMeta{APIVersion: "autoscaling/v1", Kind: "Scale"}
	changed.Spec.Replicas = replicas
	data, err := json.Marshal(changed)
	if err != nil {
		return err
	}
	_, err = s.raw().Put().AbsPath(scalePath(gvr, scale.Namespace, scale.Name)...).
		SetHeader("Content-Type", "application/json").SetHeader("Accept", "application/json").Body(data).DoRaw(ctx)
	return err
}

func (s *scaler) raw() rest.Interface { return s.clients.AutoscalingV1().RESTClient() }

func scalePath(gvr schema.GroupVersionResource, namespace, name string) []string {
	prefix := []string{"/apis", gvr.Group, gvr.Version}
	if gvr.Group == "" {
		prefix = []string{"/api", gvr.Version}
	}
	return append(prefix, "namespaces", namespace, gvr.Resource, name, "scale")
}

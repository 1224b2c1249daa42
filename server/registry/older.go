package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsinstall "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
)

// Upstream stores some kinds as an older version than the newest that it serves:
// those that came to v1 with this release, so that the release before can still
// read them, and CustomResourceDefinitions. Clusters that have been through many
// releases hold yet others.

// Older reads the values of another version of a kind.
type Older struct {
	New     func() runtime.Object
	Convert func(runtime.Object) (runtime.Object, error)
}

// Older finds how a value is read that was stored as another version of the kind.
func (k *Kind) Older(stored schema.GroupVersionKind) (Older, bool) {
	if stored.Kind != k.Kind || stored.Group != k.Group && stored.Group != formerGroup {
		return Older{}, false
	}
	for _, o := range differentlyShaped() {
		if o.kind == stored {
			return o.read, true
		}
	}
	scheme := storedScheme()
	if !scheme.Recognizes(stored) {
		return Older{}, false
	}
	return Older{
		New: func() runtime.Object {
			obj, err := scheme.New(stored)
			if err != nil { // it was recognised
				panic(err)
			}
			return obj
		},
		Convert: k.fromSameShape,
	}, true
}

// formerGroup held Deployments, Ingresses and their like once.
const formerGroup = "extensions"

var storedScheme = sync.OnceValue(Scheme)

// fromSameShape converts a version whose fields all have their like in ours, by
// name. Most versions differ in nothing but their name; a value that does not
// pass is not read rather than read by half.
func (k *Kind) fromSameShape(old runtime.Object) (runtime.Object, error) {
	old.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	text, err := json.Marshal(old)
	if err != nil {
		return nil, err
	}
	obj := k.New()
	strict, err := kjson.UnmarshalStrict(text, obj)
	if err := errors.Join(append(strict, err)...); err != nil {
		return nil, fmt.Errorf("stored as %T: %w", old, err)
	}
	return obj, nil
}

// reshaped is a version that has to be converted field by field.
type reshaped struct {
	kind schema.GroupVersionKind
	read Older
}

func differentlyShaped() []reshaped {
	return []reshaped{
		{apiextensionsv1beta1.SchemeGroupVersion.WithKind("CustomResourceDefinition"), Older{
			New: func() runtime.Object { return &apiextensionsv1beta1.CustomResourceDefinition{} }, Convert: definitionFromBeta,
		}},
	}
}

// definitionScheme converts CustomResourceDefinitions.
var definitionScheme = sync.OnceValue(func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	apiextensionsinstall.Install(scheme)
	return scheme
})

func definitionFromBeta(old runtime.Object) (runtime.Object, error) {
	scheme := definitionScheme()
	scheme.Default(old)
	var hub apiextensions.CustomResourceDefinition
	if err := scheme.Convert(old, &hub, nil); err != nil {
		return nil, err
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	return crd, scheme.Convert(&hub, crd, nil)
}

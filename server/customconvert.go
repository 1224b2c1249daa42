package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"orrery.dev/server/registry"
)

// convertTimeout is how long a conversion webhook may think.
const convertTimeout = 30 * time.Second

// convertByWebhook lets the definition's author convert.
func (s *Server) convertByWebhook(crd *definition) registry.Converter {
	webhook := *crd.Spec.Conversion.Webhook.DeepCopy()
	return func(obj *unstructured.Unstructured, to schema.GroupVersion) (*unstructured.Unstructured, error) {
		if isBare(obj) {
			return registry.Relabel(obj, to) // the field manager's empty objects
		}
		from := obj.GroupVersionKind()
		ctx, cancel := context.WithTimeout(context.Background(), convertTimeout)
		defer cancel()
		converted, err := s.askToConvert(ctx, webhook, obj, to)
		if err != nil {
			return nil, fmt.Errorf("conversion webhook for %v failed: %w", from, err)
		}
		return converted, nil
	}
}

// isBare reports whether an object has nothing that could be converted.
func isBare(obj *unstructured.Unstructured) bool {
	for key, value := range obj.Object {
		if key == "apiVersion" || key == "kind" {
			continue
		}
		if meta, ok := value.(map[string]any); key == "metadata" && ok && (len(meta) == 0 || len(meta) == 1 && meta["creationTimestamp"] == nil) {
			continue
		}
		return false
	}
	return true
}

func (s *Server) askToConvert(ctx context.Context, webhook apiextensionsv1.WebhookConversion, obj *unstructured.Unstructured, to schema.GroupVersion) (*unstructured.Unstructured, error) {
	review, err := conversionReview(webhook.ConversionReviewVersions, obj, to)
	if err != nil {
		return nil, err
	}
	reply := &apiextensionsv1.ConversionReview{}
	if err := s.webhooks.Post(ctx, hookConfig(webhook.ClientConfig), 0, review, reply); err != nil {
		return nil, err
	}
	return convertedObject(review, reply, obj, to)
}

// conversionReview is the question. Its two versions have the same form.
func conversionReview(versions []string, obj *unstructured.Unstructured, to schema.GroupVersion) (*apiextensionsv1.ConversionReview, error) {
	at := slices.IndexFunc(versions, func(v string) bool { return v == "v1" || v == "v1beta1" })
	if at < 0 {
		return nil, errors.New("no supported conversion review versions")
	}
	raw, err := json.Marshal(obj.Object)
	if err != nil {
		return nil, err
	}
	return &apiextensionsv1.ConversionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/" + versions[at], Kind: "ConversionReview"},
		Request: &apiextensionsv1.ConversionRequest{
			UID: uuid.NewUUID(), DesiredAPIVersion: to.String(), Objects: []runtime.RawExtension{{Raw: raw}},
		},
	}, nil
}

func hookConfig(c *apiextensionsv1.WebhookClientConfig) admissionregistrationv1.WebhookClientConfig {
	config := admissionregistrationv1.WebhookClientConfig{URL: c.URL, CABundle: c.CABundle}
	if c.Service != nil {
		config.Service = &admissionregistrationv1.ServiceReference{
			Namespace: c.Service.Namespace, Name: c.Service.Name, Path: c.Service.Path, Port: c.Service.Port,
		}
	}
	return config
}

// convertedObject takes the object out of the reply. A webhook converts; it may
// not make another object of it, nor touch other metadata than labels and
// annotations.
func convertedObject(review, reply *apiextensionsv1.ConversionReview, obj *unstructured.Unstructured, to schema.GroupVersion) (*unstructured.Unstructured, error) {
	r := reply.Response
	switch {
	case r == nil:
		return nil, errors.New("no response provided")
	case reply.APIVersion != review.APIVersion || reply.Kind != review.Kind:
		return nil, fmt.Errorf("expected webhook response of %s, Kind=%s, got %s, Kind=%s", review.APIVersion, review.Kind, reply.APIVersion, reply.Kind)
	case r.UID != review.Request.UID:
		return nil, fmt.Errorf("expected response.uid=%q, got %q", review.Request.UID, r.UID)
	case r.Result.Status != metav1.StatusSuccess && r.Result.Message != "":
		return nil, errors.New(r.Result.Message)
	case r.Result.Status != metav1.StatusSuccess:
		return nil, fmt.Errorf("response.result.status was '%s', not 'Success'", r.Result.Status)
	case len(r.ConvertedObjects) != 1:
		return nil, fmt.Errorf("response contains %d objects instead of 1", len(r.ConvertedObjects))
	}
	converted := &unstructured.Unstructured{}
	if err := converted.UnmarshalJSON(r.ConvertedObjects[0].Raw); err != nil {
		return nil, fmt.Errorf("invalid converted object: %w", err)
	}
	if got := converted.GetAPIVersion(); got != to.String() {
		return nil, fmt.Errorf("returned invalid converted object at index 0: invalid groupVersion (expected %v, received %v)", to, got)
	}
	for _, same := range []struct{ name, want, got string }{
		{"kind", obj.GetKind(), converted.GetKind()},
		{"name", obj.GetName(), converted.GetName()},
		{"namespace", obj.GetNamespace(), converted.GetNamespace()},
		{"UID", string(obj.GetUID()), string(converted.GetUID())},
	} {
		if same.want != same.got {
			return nil, fmt.Errorf("returned invalid converted object at index 0: must have the same %s: %v != %v", same.name, same.got, same.want)
		}
	}
	return converted, keepIdentity(obj, converted)
}

// keepIdentity gives the converted object the metadata of the original, but for
// labels and annotations.
func keepIdentity(original, converted *unstructured.Unstructured) error {
	labels, annotations := converted.GetLabels(), converted.GetAnnotations()
	path := field.NewPath("metadata")
	faults := validation.ValidateLabels(labels, path.Child("labels"))
	faults = append(faults, apivalidation.ValidateAnnotations(annotations, path.Child("annotations"))...)
	if len(faults) > 0 {
		return fmt.Errorf("returned invalid metadata at index 0: %w", faults.ToAggregate())
	}
	meta, ok := original.Object["metadata"].(map[string]any)
	if !ok {
		delete(converted.Object, "metadata")
		return nil
	}
	converted.Object["metadata"] = runtime.DeepCopyJSON(meta)
	converted.SetLabels(labels)
	converted.SetAnnotations(annotations)
	return nil
}

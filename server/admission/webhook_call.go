package admission

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"

	"orrery.dev/trace"
)

type answer = admissionv1.AdmissionResponse

// convert is an object (nil: nil) in the version that the webhook wants.
func (in invocation) convert(obj runtime.Object) (runtime.Object, error) {
	if obj == nil {
		return nil, nil
	}
	shown := obj.DeepCopyObject()
	if in.row == nil {
		return shown, nil
	}
	if in.row.FromStored != nil {
		var err error
		if shown, err = in.row.FromStored(shown); err != nil {
			return nil, err
		}
	}
	shown.GetObjectKind().SetGroupVersionKind(in.kind)
	return shown, nil
}

func (in invocation) encode(obj runtime.Object) ([]byte, error) {
	shown, err := in.convert(obj)
	if err != nil || shown == nil {
		return nil, err
	}
	return json.Marshal(shown)
}

// decode is the way back: from what a webhook made of an object to a defaulted
// object of the hub version, of the type that like has.
func (in invocation) decode(raw []byte, like runtime.Object) (runtime.Object, error) {
	if in.row == nil {
		obj, ok := reflect.New(reflect.TypeOf(like).Elem()).Interface().(runtime.Object)
		if !ok {
			return nil, fmt.Errorf("cannot make another %T", like)
		}
		return obj, json.Unmarshal(raw, obj)
	}
	obj := in.row.New()
	if err := json.Unmarshal(raw, obj); err != nil {
		return nil, err
	}
	if in.row.Default != nil {
		in.row.Default(obj)
	}
	if in.row.ToStored != nil {
		var err error
		if obj, err = in.row.ToStored(obj); err != nil {
			return nil, err
		}
	}
	if in.hub.Store != nil && in.hub.FromStored != nil { // custom kinds are not worked on as stored
		var err error
		if obj, err = in.hub.FromStored(obj); err != nil {
			return nil, err
		}
	}
	obj.GetObjectKind().SetGroupVersionKind(like.GetObjectKind().GroupVersionKind())
	return obj, nil
}

func applyPatch(doc, patch []byte) ([]byte, error) {
	p, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, err
	}
	if len(p) == 0 {
		return doc, nil
	}
	return p.Apply(doc)
}

// call asks a webhook. Its warnings and annotations are passed on.
func (w *webhooks) call(ctx context.Context, r *Request, in invocation) (*answer, error) {
	if r.DryRun && in.noDryRun {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("admission webhook %q does not support dry run", in.name))
	}
	review, err := in.review(r)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, in.timeout)
	defer cancel()
	reply := &admissionv1.AdmissionReview{}
	ctx, step := trace.Step(ctx, "webhook", attribute.String("webhook", in.name))
	err = w.caller.Post(ctx, in.client, in.timeout, review, reply)
	step.EndQuietly(err)
	if err != nil {
		return nil, fmt.Errorf("failed to call webhook: %w", err)
	}
	if err := checkReply(review, reply); err != nil {
		return nil, err
	}
	for _, text := range reply.Response.Warnings {
		if r.Warn != nil {
			r.Warn(text)
		}
	}
	for key, value := range reply.Response.AuditAnnotations {
		r.annotate(in.name+"/"+key, value)
	}
	return reply.Response, nil
}

func checkReply(review, reply *admissionv1.AdmissionReview) error {
	switch {
	case reply.Response == nil:
		return fmt.Errorf("webhook response was absent")
	case reply.APIVersion != review.APIVersion || reply.Kind != review.Kind:
		return fmt.Errorf("expected webhook response of %s, Kind=%s, got %s, Kind=%s", review.APIVersion, review.Kind, reply.APIVersion, reply.Kind)
	case reply.Response.UID != review.Request.UID:
		return fmt.Errorf("expected response.uid=%q, got %q", review.Request.UID, reply.Response.UID)
	case len(reply.Response.Patch) > 0 && (reply.Response.PatchType == nil || *reply.Response.PatchType != admissionv1.PatchTypeJSONPatch):
		return fmt.Errorf("webhook returned response.patch but not response.patchType of JSONPatch")
	}
	return nil
}

// review is the question. Its two versions have the same form.
func (in invocation) review(r *Request) (*admissionv1.AdmissionReview, error) {
	version := ""
	for _, v := range in.versions {
		if v == "v1" || v == "v1beta1" {
			version = v
			break
		}
	}
	if version == "" {
		return nil, fmt.Errorf("webhook does not accept v1 or v1beta1 AdmissionReviews")
	}
	object, err := in.encode(r.Object)
	if err != nil {
		return nil, err
	}
	old, err := in.encode(r.Old)
	if err != nil {
		return nil, err
	}
	options, err := json.Marshal(r.Options)
	if err != nil {
		return nil, err
	}
	dryRun := r.DryRun
	asked, resource := metav1.GroupVersionKind(in.asked), metav1.GroupVersionResource(r.Resource)
	request := &admissionv1.AdmissionRequest{
		UID:  uuid.NewUUID(),
		Kind: metav1.GroupVersionKind(in.kind), Resource: metav1.GroupVersionResource(in.resource), SubResource: r.Subresource,
		RequestKind: &asked, RequestResource: &resource, RequestSubResource: r.Subresource,
		Name: r.Name, Namespace: r.Namespace, Operation: admissionv1.Operation(r.Operation),
		Object: runtime.RawExtension{Raw: object}, OldObject: runtime.RawExtension{Raw: old},
		DryRun: &dryRun,
	}
	if r.Options != nil {
		request.Options = runtime.RawExtension{Raw: options}
	}
	if r.User != nil {
		request.UserInfo = authenticationv1.UserInfo{Username: r.User.GetName(), UID: r.User.GetUID(), Groups: r.User.GetGroups()}
		for key, values := range r.User.GetExtra() {
			if request.UserInfo.Extra == nil {
				request.UserInfo.Extra = map[string]authenticationv1.ExtraValue{}
			}
			request.UserInfo.Extra[key] = values
		}
	}
	return &admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/" + version, Kind: "AdmissionReview"}, Request: request}, nil
}

// Caller calls webhooks. It keeps one HTTP client per webhook server.
type Caller struct {
	reader      Reader
	credentials *credentials // nil: webhooks are called as nobody

	mu      sync.Mutex // protects clients
	clients map[[sha256.Size]byte]*http.Client
}

// NewCaller makes a caller that finds services through the reader.
func NewCaller(reader Reader) *Caller {
	return &Caller{reader: reader, clients: map[[sha256.Size]byte]*http.Client{}}
}

// largestReply bounds what a webhook may answer.
const largestReply = 10 << 20

// Post asks a webhook a question and reads the reply into answer. The webhook is
// told of the timeout, if there is one; to keep to it is ctx's business.
func (c *Caller) Post(ctx context.Context, config admissionregistrationv1.WebhookClientConfig, timeout time.Duration, question, answer any) error {
	target, err := targetOf(config)
	if err != nil {
		return err
	}
	if timeout > 0 {
		query := target.Query()
		query.Set("timeout", strconv.Itoa(int(timeout/time.Second))+"s")
		target.RawQuery = query.Encode()
	}
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, */*")
	client, err := c.client(config, target)
	if err != nil {
		return err
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(res.Body, largestReply))
	if err != nil {
		return err
	}
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return fmt.Errorf("the server answered %s", res.Status)
	}
	if err := json.Unmarshal(raw, answer); err != nil {
		return fmt.Errorf("could not get REST client response: %w", err)
	}
	return nil
}

func targetOf(config admissionregistrationv1.WebhookClientConfig) (*url.URL, error) {
	if config.Service == nil {
		if config.URL == nil {
			return nil, fmt.Errorf("webhook has neither a service nor a URL")
		}
		return url.Parse(*config.URL)
	}
	target := &url.URL{Scheme: "https", Host: net.JoinHostPort(serviceHost(config.Service), strconv.Itoa(servicePort(config.Service)))}
	if config.Service.Path != nil {
		relative, err := url.Parse(*config.Service.Path)
		if err != nil {
			return nil, err
		}
		target.Path, target.RawQuery = relative.Path, relative.RawQuery
	}
	return target, nil
}

func serviceHost(s *admissionregistrationv1.ServiceReference) string {
	return s.Name + "." + s.Namespace + ".svc"
}

func servicePort(s *admissionregistrationv1.ServiceReference) int {
	if s.Port == nil {
		return 443
	}
	return int(*s.Port)
}

func (c *Caller) client(config admissionregistrationv1.WebhookClientConfig, target *url.URL) (*http.Client, error) {
	key := sha256.Sum256(append([]byte(target.Host+"\x00"), config.CABundle...))
	c.mu.Lock()
	defer c.mu.Unlock()
	if client, ok := c.clients[key]; ok {
		return client, nil
	}
	security := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: target.Hostname()}
	if len(config.CABundle) > 0 {
		security.RootCAs = x509.NewCertPool()
		if !security.RootCAs.AppendCertsFromPEM(config.CABundle) {
			return nil, fmt.Errorf("unable to load root certificates: no certificate in caBundle")
		}
	}
	transport := &http.Transport{TLSClientConfig: security, MaxIdleConnsPerHost: 25, IdleConnTimeout: 30 * time.Second, TLSHandshakeTimeout: 10 * time.Second}
	if s := config.Service; s != nil {
		dialer := &net.Dialer{}
		transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
			address, err := c.Resolve(ctx, s.Namespace, s.Name, servicePort(s))
			if err != nil {
				return nil, err
			}
			return dialer.DialContext(ctx, network, address)
		}
	}
	authenticated, err := c.credentials.wrap(transport, target)
	if err != nil {
		return nil, err
	}
	// A webhook must not send the request elsewhere.
	client := &http.Client{Transport: authenticated, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	c.clients[key] = client
	return client, nil
}

// Resolve finds where a service is served: at one of its ready endpoints, or,
// if it has none that can be seen, behind its cluster IP.
func (c *Caller) Resolve(ctx context.Context, namespace, name string, port int) (string, error) {
	s, err := get[*corev1.Service](ctx, c.reader, core("services"), namespace, name)
	if err != nil {
		return "", err
	}
	number := strconv.Itoa(port)
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		return net.JoinHostPort(s.Spec.ExternalName, number), nil
	}
	portName, found := "", false
	for _, p := range s.Spec.Ports {
		if int(p.Port) == port {
			portName, found = p.Name, true
		}
	}
	if !found {
		return "", fmt.Errorf("no service port %d found for service %q", port, name)
	}
	slices, err := list[*discoveryv1.EndpointSlice](ctx, c.reader, schema.GroupResource{Group: discoveryv1.GroupName, Resource: "endpointslices"}, namespace)
	if err != nil {
		return "", err
	}
	var addresses []string
	for _, slice := range slices {
		if slice.Labels[discoveryv1.LabelServiceName] == name {
			addresses = append(addresses, readyAddresses(slice, portName)...)
		}
	}
	if len(addresses) > 0 {
		return addresses[rand.IntN(len(addresses))], nil
	}
	if s.Spec.ClusterIP == "" || s.Spec.ClusterIP == corev1.ClusterIPNone {
		return "", fmt.Errorf("no endpoints available for service %q", name)
	}
	return net.JoinHostPort(s.Spec.ClusterIP, number), nil
}

func readyAddresses(slice *discoveryv1.EndpointSlice, portName string) []string {
	var all []string
	for _, p := range slice.Ports {
		if p.Port == nil || p.Name == nil && portName != "" || p.Name != nil && *p.Name != portName {
			continue
		}
		for _, e := range slice.Endpoints {
			if (e.Conditions.Ready == nil || *e.Conditions.Ready) && len(e.Addresses) > 0 {
				all = append(all, net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(*p.Port))))
			}
		}
	}
	return all
}

package server

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	runtimemetrics "runtime/metrics"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// bodies are seeds: good ones, bad ones, and ones that grow when they are read.
func bodies() map[string][]byte {
	laughs := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'k'; c++ {
		laughs += fmt.Sprintf("%c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n", c, c, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1)
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	pod.Name = "x"
	message, _ := pod.Marshal()
	unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{Kind: "Pod", APIVersion: "v1"}, Raw: message}
	raw, _ := unknown.Marshal()
	deep := maxBody / 8
	return map[string][]byte{
		"pod":           []byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x"},"spec":{"containers":[{"name":"c","image":"i"}]}}`),
		"yaml":          []byte("kind: Pod\napiVersion: v1\nmetadata: {name: x}\nspec: {containers: [{name: c, image: i}]}\n"),
		"protobuf":      append(bytes.Clone(protobufPrefix), raw...),
		"empty":         nil,
		"null":          []byte("null"),
		"aliases":       []byte(laughs),
		"deep lists":    []byte(strings.Repeat("[", deep) + strings.Repeat("]", deep)),
		"deep maps":     []byte(strings.Repeat(`{"a":`, deep) + "1" + strings.Repeat("}", deep)),
		"deep field":    []byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x"},"spec":` + strings.Repeat(`{"spec":`, deep) + "1" + strings.Repeat("}", deep) + "}"),
		"deep flow":     []byte(strings.Repeat("- ", deep)),
		"long length":   append(bytes.Clone(protobufPrefix), 0x12, 0xff, 0xff, 0xff, 0xff, 0x07),
		"cbor":          []byte("\xd9\xd9\xf7\xa2\x44kind\x43Pod\x4aapiVersion\x42v1"),
		"deep cbor":     bytes.Repeat([]byte{0x81}, deep),
		"long cbor":     {0x9b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		"large integer": []byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"generation":1e400}}`),
	}
}

var encodingsFuzzed = []string{typeJSON, typeYAML, typeProtobuf, typeCBOR}

// decodeAny reads a body as every kind of object.
func decodeAny(body []byte, contentType string) {
	_, _ = decode(body, contentType, corev1.SchemeGroupVersion.WithKind("Pod"), &corev1.Pod{})
	_, _ = decode(body, contentType, corev1.SchemeGroupVersion.WithKind("ConfigMap"), &corev1.ConfigMap{})
	_, _ = decode(body, contentType, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Widget"}, &unstructured.Unstructured{})
}

// FuzzDecode reads anything in every encoding.
func FuzzDecode(f *testing.F) {
	for name, body := range bodies() {
		if !strings.HasPrefix(name, "deep") { // the fuzzer would only vary their length
			f.Add(uint8(0), body)
			f.Add(uint8(1), body)
			f.Add(uint8(2), body)
			f.Add(uint8(3), body)
		}
	}
	f.Fuzz(func(_ *testing.T, which uint8, body []byte) {
		decodeAny(body, encodingsFuzzed[int(which)%len(encodingsFuzzed)])
	})
}

// TestBombs: no body, of at most maxBody, takes much more memory than its size
// allows for, nor much time.
func TestBombs(t *testing.T) {
	allocated := func() uint64 {
		sample := []runtimemetrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
		runtimemetrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	for name, body := range bodies() {
		for _, contentType := range encodingsFuzzed {
			before := allocated()
			decodeAny(body, contentType)
			if took := allocated() - before; took > 200*maxBody {
				t.Errorf("%s as %s: %d MiB", name, contentType, took>>20)
			}
		}
	}
}

// FuzzRequest sends anything to a server: there is no panic.
func FuzzRequest(f *testing.F) {
	const widgets = "/apis/random.example.org/v1/namespaces/default/widgets"
	for _, seed := range [][4]string{
		{"GET", "/api/v1/pods?labelSelector=a+in+(b,c),!d,e!=f,g>1&fieldSelector=spec.nodeName!=,metadata.name=x&limit=1", "application/json;as=Table;v=v1;g=meta.k8s.io;q=0.5, */*", ""},
		{"GET", "/api/v1/configmaps?watch=1&resourceVersion=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", "", ""},
		{"GET", "/api/v1/configmaps?limit=1&continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoieCJ9", "application/vnd.kubernetes.protobuf", ""},
		{"POST", "/api/v1/namespaces/default/configmaps?fieldValidation=Strict&dryRun=All", typeJSON, `{"metadata":{"generateName":"x"},"data":{"a":"b"},"c":1}`},
		{"PUT", "/api/v1/namespaces/default/pods/one/status", typeYAML, "metadata: {name: one}"},
		{"PATCH", "/api/v1/namespaces/default/configmaps/one?fieldManager=m&force=true", "application/apply-patch+yaml", "apiVersion: v1\nkind: ConfigMap\ndata: {a: b}"},
		{"PATCH", "/api/v1/namespaces/default/configmaps/one", "application/strategic-merge-patch+json", `{"data":{"$patch":"replace"}}`},
		{"PATCH", widgets + "/one", "application/merge-patch+json", `{"spec":{"color":null}}`},
		{"POST", widgets, typeJSON, `{"apiVersion":"random.example.org/v1","kind":"Widget","metadata":{"name":"y"},"spec":{"color":"c"}}`},
		{"DELETE", "/api/v1/namespaces/default/configmaps?propagationPolicy=Orphan&labelSelector=a", typeJSON, `{"preconditions":{"uid":"x"}}`},
		{"POST", definitionsPath + "?dryRun=All", typeYAML, gadgets},
		{"POST", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies?dryRun=All", typeJSON, `{"metadata":{"name":"p"},"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":["*"],"apiVersions":["*"],"operations":["*"],"resources":["*"]}]},"variables":[{"name":"v","expression":"object.metadata.name"}],"validations":[{"expression":"variables.v.matches('a+') && object.spec.replicas <= params.x","messageExpression":"'no' + string(1)"}]}}`},
		{"POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", typeJSON, `{"spec":{"resourceAttributes":{"verb":"get","fieldSelector":{"rawSelector":"a=b"}}}}`},
		{"GET", "/api/v1/namespaces/default/pods/one/log?tailLines=1&sinceTime=x", "", ""},
		{"GET", "/api/v1/watch/namespaces/default/pods/one?timeoutSeconds=-1", "", ""},
		{"GET", "/apis/apps/v1/deployments?fieldSelector=a%3Db%5C%2C&timeout=1ns", "", ""},
		{"GET", "/api/\x91/0", "", ""},
	} {
		f.Add(seed[0], seed[1], seed[2], []byte(seed[3]))
	}
	log := &panics{}
	c := start(f, func(cfg *Config) { cfg.Log = slog.New(slog.NewTextHandler(log, nil)) })
	c.define(randomWidgets)
	f.Fuzz(func(t *testing.T, method, url, contentType string, body []byte) {
		if !strings.HasPrefix(url, "/") || strings.ContainsAny(url, " \r\n\t\x00") {
			return
		}
		r := request(method, url, body)
		if r == nil {
			return
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		r.Header.Set("Authorization", "Bearer admin")
		r.Header.Set("Content-Type", contentType)
		r.Header.Set("Accept", contentType)
		w := httptest.NewRecorder()
		c.server.Handler().ServeHTTP(w, r.WithContext(ctx))
		if text := log.take(); text != "" {
			t.Errorf("%s %s: %s", method, url, text)
		}
	})
}

// request is nil if nobody could send it.
func request(method, url string, body []byte) *http.Request {
	r, err := http.NewRequest(method, "http://server"+url, bytes.NewReader(body))
	if err != nil || r.URL.Host != "server" || strings.HasPrefix(r.URL.Path, "/debug/pprof/") {
		return nil // a profile takes its time
	}
	r.RequestURI = r.URL.RequestURI()
	return r
}

// panics keeps what a server logs of panics in its requests.
type panics struct {
	mu   sync.Mutex // protects text
	text string
}

func (p *panics) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("panic in a request")) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.text += string(line)
	}
	return len(line), nil
}

func (p *panics) take() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := p.text
	p.text = ""
	return text
}

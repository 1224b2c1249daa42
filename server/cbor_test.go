package server

import (
	"bytes"
	"io"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
)

func withCBOR(c *Config) { c.CBOR = true }

func inCBOR(t *testing.T, v any) string {
	t.Helper()
	body, err := direct.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

var asksCBOR = map[string]string{"Accept": typeCBOR, "Content-Type": typeCBOR}

// What is sent in CBOR comes back in it, alone, in lists, applied and watched.
func TestCBOR(t *testing.T) {
	c := start(t, withCBOR)
	const path = "/api/v1/namespaces/default/configmaps"
	sent := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"k": "v"}, BinaryData: map[string][]byte{"b": {0, 1}}}
	code, body := c.do("POST", path, inCBOR(t, sent), asksCBOR)
	var got corev1.ConfigMap
	if err := direct.Unmarshal([]byte(body), &got); err != nil || code != 201 || got.Kind != "ConfigMap" || got.Data["k"] != "v" || !bytes.Equal(got.BinaryData["b"], []byte{0, 1}) {
		t.Fatalf("%d %+v: %v", code, got, err)
	}
	applied := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a"}, "data": map[string]any{"l": "m"}}
	code, body = c.do("PATCH", path+"/a?fieldManager=x", inCBOR(t, applied), map[string]string{"Accept": typeCBOR, "Content-Type": "application/apply-patch+cbor"})
	if err := direct.Unmarshal([]byte(body), &got); err != nil || code != 200 || got.Data["l"] != "m" {
		t.Fatalf("apply: %d %+v: %v", code, got, err)
	}
	_, body = c.do("GET", path+"?labelSelector=none", "", asksCBOR)
	_, full := c.do("GET", path, "", asksCBOR)
	var none, list corev1.ConfigMapList
	if err := direct.Unmarshal([]byte(body), &none); err != nil || none.Items == nil || len(none.Items) != 0 {
		t.Errorf("an empty list: %+v: %v", none, err)
	}
	if err := direct.Unmarshal([]byte(full), &list); err != nil || list.Kind != "ConfigMapList" || len(list.Items) == 0 || list.ResourceVersion == "" {
		t.Errorf("a list: %+v: %v", list, err)
	}
	reply := c.raw("GET", path+"?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Da", "", asksCBOR)
	defer reply.Body.Close()
	if got := reply.Header.Get("Content-Type"); got != "application/cbor-seq" {
		t.Error(got)
	}
	frame := make([]byte, 1<<16)
	size, err := cbor.NewFramer().NewFrameReader(io.NopCloser(reply.Body)).Read(frame)
	var event struct {
		Type   string           `json:"type"`
		Object corev1.ConfigMap `json:"object"`
	}
	if err == nil {
		err = direct.Unmarshal(frame[:size], &event)
	}
	if err != nil || event.Type != "ADDED" || event.Object.Name != "a" || event.Object.Kind != "ConfigMap" {
		t.Errorf("watch: %+v: %v", event, err)
	}
}

// Without the gate nothing is in CBOR, and errors are what they are in JSON.
func TestCBORRefused(t *testing.T) {
	for _, test := range []struct {
		on   bool
		body string
		want int
	}{{false, inCBOR(t, map[string]any{}), 406}, {true, "no CBOR", 400}, {true, inCBOR(t, map[string]any{"kind": "Other"}), 400}} {
		c := start(t, func(config *Config) { config.CBOR = test.on })
		code, body := c.do("POST", "/api/v1/namespaces/default/configmaps", test.body, asksCBOR)
		if code != test.want {
			t.Errorf("CBOR %v, %q: %d %s", test.on, test.body, code, body)
		}
	}
}

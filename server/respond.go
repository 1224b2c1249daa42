package server

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"orrery.dev/server/storage"
)

// gzipFrom is the size above which a reply is worth compressing.
const gzipFrom = 128 * 1024

// compressors are used again: each has its own megabyte. The library's take a third
// of the time of Go's own.
var compressors = sync.Pool{New: func() any {
	compressor, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // fails for unknown levels only
	return compressor
}}

// writeObject answers with one object in the negotiated encoding.
func writeObject(w http.ResponseWriter, r *http.Request, out mediaType, code int, obj runtime.Object, kind schema.GroupVersionKind) error {
	auditResponse(r, obj, kind)
	body, err := encoded(out.name, obj, kind)
	if err != nil {
		return err
	}
	return writeEncoded(w, r, out, code, storage.Message{Rest: body}, kind)
}

// writeEncoded answers with one object that is at hand as encoded gives it: JSON is
// turned into YAML or indented if the client prefers that.
func writeEncoded(w http.ResponseWriter, r *http.Request, out mediaType, code int, m storage.Message, kind schema.GroupVersionKind) error {
	body := m.Rest
	switch {
	case out.name == typeProtobuf, out.name == typeCBOR:
		return writeBytes(w, r, out.name, code, framed(out.name, kind, m)...)
	case out.name == typeYAML:
		text, err := yaml.JSONToYAML(body)
		if err != nil {
			return err
		}
		return writeBytes(w, r, out.name, code, text)
	case out.pretty:
		var indented bytes.Buffer
		if err := json.Indent(&indented, body, "", "  "); err != nil {
			return err
		}
		return writeBytes(w, r, out.name, code, indented.Bytes())
	}
	return writeBytes(w, r, out.name, code, body, []byte("\n"))
}

// writeBytes sends a whole body, compressed if it is large and the client can.
func writeBytes(w http.ResponseWriter, r *http.Request, contentType string, code int, chunks ...[]byte) error {
	size := 0
	for _, c := range chunks {
		size += len(c)
	}
	body, done := beginBody(w, r, contentType, code, size)
	for _, c := range chunks {
		if _, err := body.Write(c); err != nil {
			return nil // the client is gone; there is nobody to tell
		}
	}
	done()
	return nil
}

// beginBody writes the head of a reply and returns where its body goes; done
// must be called at the end. size decides about compression.
func beginBody(w http.ResponseWriter, r *http.Request, contentType string, code, size int) (body io.Writer, done func()) {
	header := w.Header()
	header.Set("Content-Type", contentType)
	header.Set("Cache-Control", "no-cache, private")
	if size > gzipFrom && takesGzip(r) {
		header.Set("Content-Encoding", "gzip")
		header.Add("Vary", "Accept-Encoding")
		w.WriteHeader(code)
		compressor := compressors.Get().(*gzip.Writer)
		compressor.Reset(w)
		return compressor, func() {
			compressor.Close()
			compressors.Put(compressor)
		}
	}
	w.WriteHeader(code)
	if r.Method == http.MethodHead {
		return io.Discard, func() {}
	}
	return w, func() {}
}

// takesGzip tells whether the client can decompress.
func takesGzip(r *http.Request) bool {
	for _, encoding := range strings.Split(r.Header.Get("Accept-Encoding"), ",") {
		if strings.TrimSpace(encoding) == "gzip" {
			return true
		}
	}
	return false
}

var statusKind = schema.GroupVersionKind{Version: "v1", Kind: "Status"}

// writeStatus answers with a Status and its code.
func writeStatus(w http.ResponseWriter, r *http.Request, out mediaType, status *metav1.Status) {
	code := int(status.Code)
	if code == http.StatusNoContent || code == http.StatusNotModified {
		w.WriteHeader(code)
		return
	}
	if err := writeObject(w, r, out, code, status, statusKind); err != nil {
		http.Error(w, status.Message, code)
	}
}

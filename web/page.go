package web

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
)

// page serves the files of the built page. Vite puts a hash of the content into
// the name of everything but index.html, and the build leaves a .br and a .gz
// beside each file that gains by it.
type page struct {
	files fs.FS
	index []byte // nil: built without the dashboard
}

// nonceMark stands in index.html where the nonce for style elements goes; the
// terminal and the editor make some at run time.
const nonceMark = "__NONCE__"

func newPage(files fs.FS) *page {
	index, _ := fs.ReadFile(files, "index.html") // absence is answered for below
	return &page{files: files, index: index}
}

func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	if p.index == nil {
		http.Error(w, "built without the dashboard: run make build", http.StatusServiceUnavailable)
		return
	}
	name := strings.TrimPrefix(path.Clean(r.URL.Path), "/ui/")
	if info, err := fs.Stat(p.files, name); err == nil && !info.IsDir() && name != "index.html" {
		p.file(w, r, name)
		return
	}
	if strings.HasPrefix(name, "assets/") {
		http.NotFound(w, r) // of an older build: a page would only confuse
		return
	}
	p.view(w) // the page's own paths are views
}

func (p *page) view(w http.ResponseWriter) {
	random := make([]byte, 16)
	if _, err := rand.Read(random); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	nonce := base64.RawStdEncoding.EncodeToString(random)
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'self'; style-src 'self' 'nonce-"+nonce+"'; img-src 'self' data:; "+
		"object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	_, _ = w.Write(bytes.ReplaceAll(p.index, []byte(nonceMark), []byte(nonce)))
}

func (p *page) file(w http.ResponseWriter, r *http.Request, name string) {
	h := w.Header()
	if strings.HasPrefix(name, "assets/") {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	} else {
		h.Set("Cache-Control", "no-cache")
	}
	h.Set("Content-Type", contentType(name))
	h.Add("Vary", "Accept-Encoding")
	accepted := r.Header.Get("Accept-Encoding")
	for _, form := range []struct{ encoding, suffix string }{{"br", ".br"}, {"gzip", ".gz"}, {"", ""}} {
		if !strings.Contains(accepted, form.encoding) {
			continue
		}
		data, err := fs.ReadFile(p.files, name+form.suffix)
		if err != nil {
			continue
		}
		if form.encoding != "" {
			h.Set("Content-Encoding", form.encoding)
		}
		h.Set("Content-Length", strconv.Itoa(len(data)))
		_, _ = w.Write(data)
		return
	}
}

// contentType does not depend on the machine's own table for what we ship.
func contentType(name string) string {
	switch path.Ext(name) {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	case ".woff2":
		return "font/woff2"
	}
	if t := mime.TypeByExtension(path.Ext(name)); t != "" {
		return t
	}
	return "application/octet-stream"
}

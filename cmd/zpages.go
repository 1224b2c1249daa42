package cmd

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/munnerz/goautoneg"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// zpages are what a component says of itself to who debugs it: /statusz, and
// /flagz with its command line.
type zpages struct {
	component string
	paths     func() []string // that it serves
	flags     *pflag.FlagSet
	cbor      bool // is spoken
}

// processStart is about when the process was started.
var processStart = time.Now()

// handlers are the pages by path.
func (z zpages) handlers() map[string]http.Handler {
	return map[string]http.Handler{
		"/statusz": zpage{"Statusz", "statusz", z.component, z.media(), z.status},
		"/flagz":   zpage{"Flagz", "flagz", z.component, z.media(), z.flagValues},
	}
}

// media are the types that a page comes in; all but text are structured.
func (z zpages) media() []string {
	media := []string{"application/json", "application/yaml", "text/plain"}
	if z.cbor {
		media = append(media, "application/cbor")
	}
	return media
}

// zfield is one of a page: how the structured form names it, how the text does.
type zfield struct {
	name, label string
	value       any
	text        string
}

func (z zpages) status() []zfield {
	up := time.Since(processStart)
	paths := debugPaths(z.paths())
	return []zfield{
		{"startTime", "Started", processStart.UTC().Format(time.RFC3339), processStart.Format(time.UnixDate)},
		{"uptimeSeconds", "Up", int64(up.Seconds()), fmt.Sprintf("%d hr %02d min %02d sec", int(up.Hours()), int(up.Minutes())%60, int(up.Seconds())%60)},
		{"goVersion", "Go version", runtime.Version(), runtime.Version()},
		{"binaryVersion", "Binary version", strings.TrimPrefix(kubernetesVersion, "v"), strings.TrimPrefix(kubernetesVersion, "v")},
		{"emulationVersion", "Emulation version", release(), release()},
		{"paths", "Paths", paths, strings.Join(paths, " ")},
	}
}

// debugPaths are the first parts of paths, but of those that are the API.
func debugPaths(paths []string) []string {
	found := map[string]bool{}
	for _, path := range paths {
		first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
		switch first {
		case "", "api", "apis", "openid", "openapi", ".well-known", "orrery":
		default:
			found["/"+first] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

func (z zpages) flagValues() []zfield {
	values := map[string]string{}
	z.flags.VisitAll(func(f *pflag.Flag) { values[f.Name] = f.Value.String() })
	fields := []zfield{{name: "flags", value: values}}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		fields = append(fields, zfield{label: name, text: values[name]})
	}
	return fields
}

// zpage is one page, as text or in a structured form.
type zpage struct {
	kind, name, component string
	media                 []string
	fields                func() []zfield
}

const zpageHead = `
%s %s
Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.
`

func (z zpage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	accept := cmp.Or(strings.TrimSpace(r.Header.Get("Accept")), "text/plain")
	for _, clause := range goautoneg.ParseAccept(accept) {
		media := clause.Type + "/" + clause.SubType
		structured := clause.Params["as"] == z.kind && clause.Params["g"] == "config.k8s.io" && (clause.Params["v"] == "v1alpha1" || clause.Params["v"] == "v1beta1")
		switch {
		case clause.Params["as"] == "" && (media == "text/plain" || media == "text/*" || media == "*/*"):
			z.writeText(w)
			return
		case structured && media != "text/plain" && slices.Contains(z.media, media):
			z.write(w, media, clause.Params["v"])
			return
		}
	}
	body, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable,
		Message: "only the following media types are accepted: " + strings.Join(z.media, ", "),
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusNotAcceptable)
	_, _ = w.Write(body) // who asked may be gone
}

func (z zpage) writeText(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintf(w, zpageHead, z.component, z.name)
	if z.name == "statusz" {
		fmt.Fprintln(w)
	}
	for _, f := range z.fields() {
		if f.label != "" {
			fmt.Fprintf(w, "%s=%s\n", f.label, f.text)
		}
	}
}

// zencoders write the structured forms.
var zencoders = map[string]func(any) ([]byte, error){
	"application/json": json.Marshal,
	"application/yaml": yaml.Marshal,
	"application/cbor": func(page any) ([]byte, error) {
		var plain map[string]any
		text, err := json.Marshal(page)
		if err := errors.Join(err, json.Unmarshal(text, &plain)); err != nil {
			return nil, err
		}
		var out bytes.Buffer
		err = cbor.NewSerializer(nil, nil).Encode(&unstructured.Unstructured{Object: plain}, &out)
		return out.Bytes(), err
	},
}

func (z zpage) write(w http.ResponseWriter, media, version string) {
	page := map[string]any{"kind": z.kind, "apiVersion": "config.k8s.io/" + version, "metadata": map[string]any{"name": z.component}}
	for _, f := range z.fields() {
		if f.name != "" {
			page[f.name] = f.value
		}
	}
	body, err := zencoders[media](page)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", media+";g=config.k8s.io;v="+version+";as="+z.kind)
	if version == "v1alpha1" {
		w.Header().Set("Warning", fmt.Sprintf(`299 - "This version of the %s endpoint is deprecated. Please use a newer version."`, z.name))
	}
	_, _ = w.Write(body) // who asked may be gone
}

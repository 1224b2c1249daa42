// Command gen writes server/openapi/definitions.json.gz: the OpenAPI schemas of
// the built-in kinds. `make generate` runs it, from the root of the repository:
//
//	go run ./server/openapi/gen
//
// It goes in two steps. kube-openapi's generator reads the types' source and
// writes a Go package with their definitions; a program made on the spot runs
// that package and prints them as JSON. Neither is kept: 5 MB of Go that would
// be compiled into the binary, against 200 kB of compressed JSON.
package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"k8s.io/gengo/v2"
	"k8s.io/gengo/v2/generator"
	"k8s.io/kube-openapi/cmd/openapi-gen/args"
	"k8s.io/kube-openapi/pkg/generators"
)

const output = "server/openapi/definitions.json.gz"

// packages are those whose types go over the wire.
var packages = []string{
	"k8s.io/api/admissionregistration/v1", "k8s.io/api/apidiscovery/v2", "k8s.io/api/apps/v1",
	"k8s.io/api/authentication/v1", "k8s.io/api/authorization/v1", "k8s.io/api/autoscaling/v1",
	"k8s.io/api/autoscaling/v2", "k8s.io/api/batch/v1", "k8s.io/api/certificates/v1",
	"k8s.io/api/coordination/v1", "k8s.io/api/core/v1", "k8s.io/api/discovery/v1",
	"k8s.io/api/events/v1", "k8s.io/api/flowcontrol/v1", "k8s.io/api/networking/v1",
	"k8s.io/api/node/v1", "k8s.io/api/policy/v1", "k8s.io/api/rbac/v1", "k8s.io/api/resource/v1",
	"k8s.io/api/scheduling/v1", "k8s.io/api/scheduling/v1alpha3", "k8s.io/api/storage/v1", "k8s.io/api/storagemigration/v1",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1",
	"k8s.io/apimachinery/pkg/api/resource", "k8s.io/apimachinery/pkg/apis/meta/v1",
	"k8s.io/apimachinery/pkg/runtime", "k8s.io/apimachinery/pkg/util/intstr", "k8s.io/apimachinery/pkg/version",
	"orrery.dev/api",
}

// printer is the program of the second step. It adds which kinds each type is,
// by the groups that upstream's server knows, served or not.
const printer = `package main

import (
	"encoding/json"
	"os"
	"sort"

	admissionv1 "k8s.io/api/admission/v1"
	admissionv1beta1 "k8s.io/api/admission/v1beta1"
	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"orrery.dev/api"
	"orrery.dev/server/openapi/gen/tmp/defs"
)

func main() {
	ref := func(name string) spec.Ref { return spec.MustCreateRef("#/definitions/" + common.EscapeJsonPointer(name)) }
	kinds := kindsByModel()
	out := map[string]spec.Schema{}
	for name, d := range defs.GetOpenAPIDefinitions(ref) {
		schema := d.Schema
		if of := kinds[name]; of != nil {
			schema.AddExtension("x-kubernetes-group-version-kind", of)
		}
		out[name] = schema
	}
	if err := json.NewEncoder(os.Stdout).Encode(out); err != nil {
		panic(err)
	}
}

func kindsByModel() map[string][]metav1.GroupVersionKind {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		scheme.AddToScheme, admissionv1.AddToScheme, admissionv1beta1.AddToScheme, imagepolicyv1alpha1.AddToScheme,
		apiextensionsv1.AddToScheme, apiextensionsv1beta1.AddToScheme, api.AddAPIRegistration,
	} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	metav1.AddToGroupVersion(s, schema.GroupVersion{Group: api.APIRegistrationGroup, Version: "v1beta1"})
	s.AddUnversionedTypes(schema.GroupVersion{Version: "v1"}, &metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{}, &metav1.APIGroup{}, &metav1.APIResourceList{})
	kinds := map[string][]metav1.GroupVersionKind{}
	for gvk := range s.AllKnownTypes() {
		name, err := s.ToOpenAPIDefinitionName(gvk)
		if err != nil {
			panic(err)
		}
		kinds[name] = append(kinds[name], metav1.GroupVersionKind(gvk))
	}
	for _, of := range kinds {
		sort.Slice(of, func(i, j int) bool { return of[i].String() < of[j].String() })
	}
	return kinds
}
`

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run() error {
	tmp := filepath.FromSlash("server/openapi/gen/tmp")
	defer os.RemoveAll(tmp)
	if err := generate(filepath.Join(tmp, "defs")); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(tmp, "main.go"), []byte(printer), 0o644); err != nil {
		return err
	}
	cmd := exec.Command("go", "run", "./server/openapi/gen/tmp")
	cmd.Stderr = os.Stderr
	definitions, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("print definitions: %w", err)
	}
	return compress(definitions)
}

func generate(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	a := args.New()
	a.OutputDir, a.OutputPkg, a.OutputFile = dir, "orrery.dev/server/openapi/gen/tmp/defs", "defs.go"
	a.ReportFilename = os.DevNull
	targets := func(c *generator.Context) []generator.Target {
		return generators.GetOpenAPITargets(c, a, []byte("// Code generated by openapi-gen. DO NOT EDIT.\n"))
	}
	if err := gengo.Execute(generators.NameSystems(), generators.DefaultNameSystem(), targets, gengo.StdBuildTag, packages); err != nil {
		return fmt.Errorf("generate definitions: %w", err)
	}
	return nil
}

func compress(definitions []byte) error {
	var out bytes.Buffer
	zip, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := zip.Write(definitions); err != nil {
		return err
	}
	if err := zip.Close(); err != nil {
		return err
	}
	return os.WriteFile(output, out.Bytes(), 0o644)
}

package differential

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// object is one of objects.yaml.
type object struct {
	unstructured.Unstructured
	label      string // in names of cases
	collection string // path
	name       string
}

func readObjects() ([]object, error) {
	text, err := files.ReadFile("objects.yaml")
	if err != nil {
		return nil, err
	}
	var all []object
	seen := map[string]int{}
	for i, doc := range strings.Split(string(text), "\n---\n") {
		o := object{}
		if err := yaml.Unmarshal([]byte(doc), &o.Object); err != nil {
			return nil, fmt.Errorf("object %d: %w", i, err)
		}
		gvk := o.GroupVersionKind()
		plural, _ := meta.UnsafeGuessKindToResource(gvk)
		o.label, o.name = label(plural), o.GetName()
		if seen[o.label]++; seen[o.label] > 1 {
			o.label += fmt.Sprintf("-%d", seen[o.label])
		}
		o.collection = "/apis/" + gvk.GroupVersion().String()
		if gvk.Group == "" {
			o.collection = "/api/v1"
		}
		if o.GetNamespace() != "" {
			o.collection += "/namespaces/${ns}"
		}
		o.collection += "/" + plural.Resource
		all = append(all, o)
	}
	return all, nil
}

func label(r schema.GroupVersionResource) string {
	group, _, _ := strings.Cut(r.Group, ".")
	return strings.TrimPrefix(strings.TrimPrefix(fmt.Sprintf("%s-%s-%s", group, r.Version, r.Resource), "-"), "v1-")
}

// with is a copy of the object with a field set, or without it if value is nil.
func (o object) with(value any, path ...string) string {
	c := o.DeepCopy()
	if value == nil {
		unstructured.RemoveNestedField(c.Object, path...)
	} else if err := unstructured.SetNestedField(c.Object, value, path...); err != nil {
		return err.Error()
	}
	return text(c.Object)
}

func text(v any) string {
	out, err := yaml.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(out)
}

const (
	tableType   = "application/json;as=Table;v=v1;g=meta.k8s.io"
	partialType = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
	partialList = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
	protobuf    = "application/vnd.kubernetes.protobuf"
	merge       = "application/merge-patch+json"
	strategic   = "application/strategic-merge-patch+json"
	jsonPatch   = "application/json-patch+json"
	apply       = "application/apply-patch+yaml"
)

// settles are what the server itself adds to a new object of a kind, which takes it a
// moment.
var settles = map[string]map[string]string{
	"CustomResourceDefinition": {`status.conditions[?(@.type=="Established")].status`: "True"},
	"FlowSchema":               {`status.conditions[?(@.type=="Dangling")].type`: "Dangling"},
	"APIService":               {`status.conditions[?(@.type=="Available")].type`: "Available"},
}

// settled waits until the server has added to the object what it does by itself.
func (o object) settled() []Step {
	if settles[o.GetKind()] == nil {
		return nil
	}
	return []Step{{Method: "GET", Path: o.collection + "/" + o.name, Quiet: true, Until: settles[o.GetKind()]}}
}

// kindCases are what every kind is asked.
func (o object) kindCases() []Case {
	full := text(o.Object)
	item := o.collection + "/" + o.name
	create := Step{Method: "POST", Path: o.collection, Body: full}
	prepared := create
	prepared.Quiet = true
	get := func(path, accept string) Step {
		return Step{Method: "GET", Path: path, Header: map[string]string{"Accept": accept}}
	}
	send := func(method, path, contentType, body string) Step {
		return Step{Method: method, Path: path, Header: map[string]string{"Content-Type": contentType}, Body: body}
	}
	clean := Step{Method: "DELETE", Path: item + "?gracePeriodSeconds=0", Quiet: true}
	bare := fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: \"%s\"}\n", o.GetAPIVersion(), o.GetKind(), o.name)
	one := func(name string, steps ...Step) Case {
		if len(steps) > 0 && steps[0].Quiet {
			steps = slices.Insert(steps, 1, o.settled()...)
		}
		return Case{Name: "kinds/" + o.label + "/" + name, Steps: steps}
	}
	gone := get(item, "application/json")
	held := []Step{gone, send("PATCH", item, merge, `{"metadata":{"finalizers":null}}`)}
	if o.GetKind() == "CustomResourceDefinition" { // whose objects go first
		gone.Until = map[string]string{"code": "404"}
		held = []Step{gone}
	}
	post := func(query, body string) Step {
		return Step{Method: "POST", Path: o.collection + query, Body: body}
	}
	return []Case{
		one("create", create, clean),
		one("create-again", prepared, create, clean),
		one("get", prepared, get(item, "application/json"), clean),
		one("get-table", prepared, get(item, tableType), clean),
		one("get-partial", prepared, get(item, partialType), clean),
		one("get-protobuf", prepared, get(item, protobuf), clean),
		one("get-cbor", prepared, get(item, "application/cbor"), clean),
		one("get-yaml", prepared, get(item, "application/yaml"), clean),
		one("get-none", get(o.collection+"/none", "application/json"), get(o.collection+"/none/status", "application/json")),
		one("list-table", prepared, get(o.collection+"?fieldSelector=metadata.name="+o.name, tableType), clean),
		one("list-partial", prepared, get(o.collection+"?fieldSelector=metadata.name="+o.name, partialList), clean),
		one("list", prepared, get(o.collection+"?fieldSelector=metadata.name="+o.name, "application/json"), clean),
		one("list-protobuf", prepared, get(o.collection+"?fieldSelector=metadata.name="+o.name, protobuf), clean),
		one("list-selector-bad", get(o.collection+"?fieldSelector=spec.none=a", "application/json"), get(o.collection+"?labelSelector=a%20b", "application/json"), get(o.collection+"?fieldSelector=a", "application/json")),
		one("watch", prepared, get(o.collection+"?watch=1&timeoutSeconds=1&fieldSelector=metadata.name="+o.name, "application/json"), clean),
		one("update", prepared, Step{Method: "PUT", Path: item, Body: o.with(map[string]any{"new": "label"}, "metadata", "labels")}, clean),
		one("update-stale", prepared, Step{Method: "PUT", Path: item, Body: o.with("1", "metadata", "resourceVersion")}, clean),
		one("update-other-name", prepared, Step{Method: "PUT", Path: item, Body: o.with("other", "metadata", "name")}, clean),
		one("update-other-uid", prepared, Step{Method: "PUT", Path: item, Body: o.with("00000000-0000-0000-0000-000000000000", "metadata", "uid")}, clean),
		one("update-none", Step{Method: "PUT", Path: o.collection + "/none", Body: o.with("none", "metadata", "name")},
			Step{Method: "DELETE", Path: o.collection + "/none?gracePeriodSeconds=0", Quiet: true}), // some kinds are made by it
		one("update-bare", prepared, Step{Method: "PUT", Path: item, Body: bare}, clean),
		one("patch-merge", prepared, send("PATCH", item, merge, `{"metadata":{"annotations":{"a":"b"}}}`), clean),
		one("patch-strategic", prepared, send("PATCH", item, strategic, `{"metadata":{"annotations":{"a":"b"},"finalizers":["example.org/f"]}}`),
			send("PATCH", item, strategic, `{"metadata":{"$deleteFromPrimitiveList/finalizers":["example.org/f"]}}`), clean),
		one("patch-json", prepared, send("PATCH", item, jsonPatch, `[{"op":"test","path":"/metadata/name","value":"wrong"}]`),
			send("PATCH", item, jsonPatch, `[{"op":"add","path":"/metadata/labels","value":{"x":"y"}}]`), clean),
		one("patch-bad", prepared, send("PATCH", item, merge, `{"metadata":{"name":"other"}}`), send("PATCH", item, merge, `{"spec":"text"}`), send("PATCH", item, merge, `{`),
			send("PATCH", item, "application/json", `{}`), send("PATCH", item, jsonPatch, `{}`), clean),
		one("patch-unknown", prepared, send("PATCH", item+"?fieldValidation=Strict", merge, `{"unknown":{"x":1}}`), send("PATCH", item, merge, `{"unknown":{"x":1}}`), clean),
		one("apply", slices.Concat([]Step{send("PATCH", item+"?fieldManager=a", apply, full)}, o.settled(), []Step{send("PATCH", item+"?fieldManager=b", apply, full),
			send("PATCH", item, apply, full), send("PATCH", item+"?fieldManager=b&fieldValidation=Strict", apply, bare+"unknown: 1\n"), clean})...),
		one("status", prepared, send("PATCH", item+"/status", merge, `{"metadata":{"labels":{"from":"status"}},"status":{}}`), get(item+"/status", "application/json"), clean),
		one("status-unknown", prepared, send("PATCH", item+"/status?fieldValidation=Strict", merge, `{"status":{"unknown":1}}`), clean),
		one("delete", prepared, Step{Method: "DELETE", Path: item + "?dryRun=All"}, Step{Method: "DELETE", Path: item}, gone, clean),
		one("delete-precondition", prepared, Step{Method: "DELETE", Path: item, Body: "preconditions: {uid: 00000000-0000-0000-0000-000000000000}"},
			Step{Method: "DELETE", Path: item, Body: "preconditions: {resourceVersion: \"1\"}"}, clean),
		one("delete-options-bad", prepared, Step{Method: "DELETE", Path: item + "?propagationPolicy=Wrong"}, Step{Method: "DELETE", Path: item + "?propagationPolicy=Orphan&orphanDependents=true"},
			Step{Method: "DELETE", Path: item + "?gracePeriodSeconds=-1&dryRun=Wrong"}, clean),
		one("delete-foreground", slices.Concat([]Step{prepared, {Method: "DELETE", Path: item + "?propagationPolicy=Foreground"}}, held, []Step{clean})...),
		one("delete-none", Step{Method: "DELETE", Path: o.collection + "/none"}),
		one("deletecollection", prepared, Step{Method: "DELETE", Path: o.collection + "?labelSelector=never=ever"}, Step{Method: "DELETE", Path: o.collection + "?dryRun=All&fieldSelector=metadata.name=" + o.name}, clean),
		one("bare", post("?dryRun=All", bare), post("?dryRun=All&fieldValidation=Strict", bare+"spec: {}\n")),
		one("empty", post("?dryRun=All", "{}"), send("POST", o.collection, "application/json", ""), send("POST", o.collection, "application/json", "{"), send("POST", o.collection, "application/json", "[]"), send("POST", o.collection, "application/json", "null")),
		one("name-none", post("?dryRun=All", o.with(nil, "metadata", "name"))),
		one("name-bad", post("?dryRun=All", o.with("Bad_Name!", "metadata", "name")), post("?dryRun=All", o.with("a/b", "metadata", "name")), post("?dryRun=All", o.with("..", "metadata", "name"))),
		one("name-long", post("?dryRun=All", o.with(strings.Repeat("a", 254), "metadata", "name"))),
		one("name-generated-bad", post("?dryRun=All", generated(o, "Bad_"))),
		one("name-generated", post("?dryRun=All", generated(o, "gen-"))),
		one("namespace-other", post("?dryRun=All", o.with("other", "metadata", "namespace"))),
		one("kind-other", post("?dryRun=All", o.with("Other", "kind")), post("?dryRun=All", o.with("other/v9", "apiVersion"))),
		one("kind-none", post("?dryRun=All", o.with(nil, "kind")), post("?dryRun=All", o.with(nil, "apiVersion"))),
		one("unknown-strict", post("?dryRun=All&fieldValidation=Strict", full+"unknown: {x: 1}\n")),
		one("unknown-warn", post("?dryRun=All&fieldValidation=Warn", full+"unknown: {x: 1}\n")),
		one("unknown-ignore", post("?dryRun=All&fieldValidation=Ignore", full+"unknown: {x: 1}\n")),
		one("unknown-wrong", post("?dryRun=All&fieldValidation=Wrong", full)),
		one("dryrun-wrong", post("?dryRun=Wrong", full)),
		one("manager-long", post("?dryRun=All&fieldManager="+strings.Repeat("m", 129), full)),
		one("meta-bad", post("?dryRun=All", o.with(map[string]any{"Bad Key": "Bad Value!"}, "metadata", "labels")), post("?dryRun=All", o.with(map[string]any{"Bad Key": "v"}, "metadata", "annotations")),
			post("?dryRun=All", o.with([]any{"bad"}, "metadata", "finalizers")), post("?dryRun=All", o.with([]any{map[string]any{"apiVersion": "v1", "kind": "", "name": "", "uid": ""}}, "metadata", "ownerReferences")),
			post("?dryRun=All", o.with("1", "metadata", "resourceVersion"))),
	}
}

func generated(o object, prefix string) string {
	c := object{Unstructured: *o.DeepCopy()}
	unstructured.RemoveNestedField(c.Object, "metadata", "name")
	return c.with(prefix, "metadata", "generateName")
}

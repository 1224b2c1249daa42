package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	tracecollector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"orrery.dev/api"
	"orrery.dev/server/registry"
	"orrery.dev/trace"
)

// Journeys answers GET on api.JourneyPath and takes what is POSTed to
// api.SpansPath. Mount it with Config.Own: it asks itself what the user may do.
type Journeys struct {
	Spans      *trace.Receiver
	Authorizer authorizer.UnconditionalAuthorizer
}

// ServeHTTP answers with a journey, or the last calls of a component.
func (j *Journeys) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	who := registry.UserFrom(r.Context())
	if r.URL.Path == api.SpansPath {
		j.receive(w, r, who)
		return
	}
	if r.Method != http.MethodGet {
		http.Error(w, "GET is all there is", http.StatusMethodNotAllowed)
		return
	}
	may := func(o api.JourneyObject) bool {
		decision, _, err := j.Authorizer.Authorize(r.Context(), authorizer.AttributesRecord{
			User: who, Verb: "get", ResourceRequest: true, APIGroup: o.Group, APIVersion: "*", Resource: o.Resource, Namespace: o.Namespace, Name: o.Name,
		})
		return err == nil && decision == authorizer.DecisionAllow
	}
	q := r.URL.Query()
	var answer api.Journey
	switch {
	case q.Get("uid") != "":
		answer = j.Spans.Journey(q.Get("uid"), q.Get("change"), may)
	case q.Get("component") != "":
		answer = j.Spans.Calls(q.Get("component"), q.Get("node"), may)
	default:
		http.Error(w, "uid or component is needed", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(answer)
}

// Bounds of a batch of spans.
const (
	spansBytes = 2 << 20
	spansMost  = 1024
)

// receive takes a batch of spans of a component.
func (j *Journeys) receive(w http.ResponseWriter, r *http.Request, who user.Info) {
	if r.Method != http.MethodPost {
		http.Error(w, "spans are POSTed", http.StatusMethodNotAllowed)
		return
	}
	if !slices.ContainsFunc(components, func(component string) bool { return speaksFor(who, component) }) {
		http.Error(w, fmt.Sprintf("%q is no component of the cluster", who.GetName()), http.StatusForbidden)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, spansBytes))
	if err != nil {
		http.Error(w, "spans are sent in batches of 2 MiB at most", http.StatusRequestEntityTooLarge)
		return
	}
	batch := &tracecollector.ExportTraceServiceRequest{}
	if err := proto.Unmarshal(body, batch); err != nil {
		http.Error(w, "not an ExportTraceServiceRequest", http.StatusBadRequest)
		return
	}
	if err := check(who, batch.ResourceSpans); err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	j.Spans.Receive(batch.ResourceSpans)
	w.Header().Set("Content-Type", "application/x-protobuf") // of an empty answer: all were taken
}

// check refuses spans that their sender may not speak of. What a node says is
// said by that node.
func check(who user.Info, batch []*tracepb.ResourceSpans) error {
	n := 0
	for _, from := range batch {
		component := trace.ComponentOf(from)
		if !speaksFor(who, component) {
			return fmt.Errorf("%q does not speak for %q", who.GetName(), component)
		}
		for _, scope := range from.ScopeSpans {
			n += len(scope.Spans)
		}
		if node, ok := nodeOf(who); ok {
			trace.SetNode(from, node)
		}
	}
	if n > spansMost {
		return errors.New("too many spans at once")
	}
	return nil
}

// speaksFor reports whether a user is a component. Administrators are any.
func speaksFor(who user.Info, component string) bool {
	if slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup) {
		return slices.Contains(components, component)
	}
	switch component {
	case "kube-scheduler", "kube-controller-manager":
		return who.GetName() == "system:"+component
	case "kubelet":
		_, ok := nodeOf(who)
		return ok
	case "kube-proxy":
		return who.GetName() == "system:serviceaccount:kube-system:kube-proxy" || who.GetName() == user.KubeProxy
	}
	return false
}

// nodeOf is the node that a user is.
func nodeOf(who user.Info) (string, bool) {
	const prefix = "system:node:"
	name := who.GetName()
	if len(name) <= len(prefix) || name[:len(prefix)] != prefix || !slices.Contains(who.GetGroups(), user.NodesGroup) {
		return "", false
	}
	return name[len(prefix):], true
}

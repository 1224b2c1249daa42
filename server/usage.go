package server

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	podresource "k8s.io/component-helpers/resource"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"orrery.dev/api"
	"orrery.dev/server/registry"
	"orrery.dev/server/storage"
)

const (
	// usageFresh is how long a look at the nodes is good for: they measure no
	// more often.
	usageFresh = 10 * time.Second
	// usageTimeout bounds the wait for nodes that do not answer, usageAsking how
	// many are asked at a time.
	usageTimeout = 3 * time.Second
	usageAsking  = 64
)

// Usage answers GET on api.UsagePath: requests and limits from the objects, what
// is used from the node agents. Nobody is asked while nobody looks.
type Usage struct {
	store      *storage.Store
	authorizer authorizer.Authorizer
	kubelet    *kubelet

	mu     sync.Mutex // held while asking, so that the nodes are asked once for all who look
	at     time.Time
	nodes  map[string]api.Amounts
	pods   map[string]api.Amounts // by the UID that their node knows them by
	failed string
}

// NewUsage makes the handler. Mount it behind authentication but not behind
// authorisation: it tells everybody what they may list.
func NewUsage(store *storage.Store, a authorizer.Authorizer, k KubeletConfig) *Usage {
	return &Usage{store: store, authorizer: a, kubelet: newKubelet(k)}
}

// ServeHTTP answers with an api.Usage.
func (u *Usage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	out, err := u.look(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(out)
}

func (u *Usage) look(r *http.Request) (*api.Usage, error) {
	ctx, who := r.Context(), registry.UserFrom(r.Context())
	nodes, err := listAll[*corev1.Node](ctx, u.store, "nodes")
	if err != nil {
		return nil, err
	}
	pods, err := listAll[*corev1.Pod](ctx, u.store, "pods")
	if err != nil {
		return nil, err
	}
	usedByNode, usedByPod, failed := u.measure(ctx, nodes)
	out := &api.Usage{Pods: []api.PodUsage{}, Nodes: []api.NodeUsage{}, Error: failed}
	chosen, may := r.URL.Query()["namespace"], map[string]bool{}
	everywhere := u.may(ctx, who, "pods", "")
	requests, limits := map[string]*api.Amounts{}, map[string]*api.Amounts{}
	for _, pod := range pods {
		if pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		p := api.PodUsage{
			Namespace: pod.Namespace, Name: pod.Name,
			Requests: api.AmountsOf(podresource.PodRequests(pod, podresource.PodResourcesOptions{})),
			Limits:   api.AmountsOf(podresource.PodLimits(pod, podresource.PodResourcesOptions{})),
		}
		sum(requests, pod.Spec.NodeName, p.Requests)
		sum(limits, pod.Spec.NodeName, p.Limits)
		if len(chosen) > 0 && !slices.Contains(chosen, pod.Namespace) {
			continue
		}
		allowed, asked := may[pod.Namespace]
		if !asked {
			allowed = everywhere || u.may(ctx, who, "pods", pod.Namespace)
			may[pod.Namespace] = allowed
		}
		if !allowed {
			continue
		}
		// A static pod's node knows it by another UID than its mirror's.
		if used, ok := usedByPod[cmp.Or(pod.Annotations[corev1.MirrorPodAnnotationKey], string(pod.UID))]; ok {
			p.Used = &used
		}
		out.Pods = append(out.Pods, p)
	}
	if !u.may(ctx, who, "nodes", "") {
		return out, nil
	}
	for _, node := range nodes {
		n := api.NodeUsage{Name: node.Name, Allocatable: api.AmountsOf(node.Status.Allocatable)}
		if used, ok := usedByNode[node.Name]; ok {
			n.Used = &used
		}
		if sum := requests[node.Name]; sum != nil {
			n.Requests, n.Limits = *sum, *limits[node.Name]
		}
		out.Nodes = append(out.Nodes, n)
	}
	return out, nil
}

func listAll[T any](ctx context.Context, store *storage.Store, resource string) ([]T, error) {
	page, err := store.Collection(schema.GroupResource{Resource: resource}).List(ctx, storage.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, err
	}
	out := make([]T, 0, len(page.Items))
	for _, item := range page.Items {
		if object, ok := any(item.Object()).(T); ok {
			out = append(out, object)
		}
	}
	return out, nil
}

func (u *Usage) may(ctx context.Context, who user.Info, resource, namespace string) bool {
	decision, _, _ := u.authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: who, Verb: "list", Namespace: namespace, APIVersion: "v1", Resource: resource, ResourceRequest: true,
	})
	return decision == authorizer.DecisionAllow
}

func sum(into map[string]*api.Amounts, key string, a api.Amounts) {
	if into[key] == nil {
		into[key] = &api.Amounts{}
	}
	into[key].Add(a)
}

// measure asks all nodes, or remembers what they said a moment ago. The maps
// are not written to once they are returned.
func (u *Usage) measure(ctx context.Context, nodes []*corev1.Node) (byNode, byPod map[string]api.Amounts, failed string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if time.Since(u.at) < usageFresh {
		return u.nodes, u.pods, u.failed
	}
	// Whoever asked may leave; those who wait want the answer all the same.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), usageTimeout)
	defer cancel()
	byNode, byPod = map[string]api.Amounts{}, map[string]api.Amounts{}
	var mu sync.Mutex // protects the maps and what went wrong
	var asking sync.WaitGroup
	slots := make(chan struct{}, usageAsking)
	var silent int
	for _, node := range nodes {
		asking.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			summary, err := u.summary(ctx, node)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				silent++
				failed = fmt.Sprintf("%s: %v", node.Name, err)
				return
			}
			byNode[node.Name] = used(summary.Node.CPU, summary.Node.Memory)
			for _, pod := range summary.Pods {
				byPod[pod.PodRef.UID] = used(pod.CPU, pod.Memory)
			}
		})
	}
	asking.Wait()
	if silent > 1 {
		failed = fmt.Sprintf("%d of %d nodes do not say what they use; %s", silent, len(nodes), failed)
	}
	u.at, u.nodes, u.pods, u.failed = time.Now(), byNode, byPod, failed
	return byNode, byPod, failed
}

func (u *Usage) summary(ctx context.Context, node *corev1.Node) (*stats.Summary, error) {
	host, port, err := u.kubelet.address(node)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+net.JoinHostPort(host, strconv.Itoa(int(port)))+"/stats/summary", nil)
	if err != nil {
		return nil, err
	}
	answer, err := u.kubelet.transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s", answer.Status)
	}
	var s stats.Summary
	return &s, json.NewDecoder(answer.Body).Decode(&s)
}

func used(cpu *stats.CPUStats, memory *stats.MemoryStats) api.Amounts {
	var a api.Amounts
	if cpu != nil && cpu.UsageNanoCores != nil {
		a.CPU = int64(*cpu.UsageNanoCores / 1e6)
	}
	if memory != nil && memory.WorkingSetBytes != nil {
		a.Memory = int64(*memory.WorkingSetBytes)
	}
	return a
}

package remote

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podresource "k8s.io/component-helpers/resource"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"orrery.dev/api"
)

const metricsPath = "/apis/metrics.k8s.io/v1beta1"

// usage answers on api.UsagePath: requests and limits from the objects, what is used
// from metrics.k8s.io, if that is served.
func (s *Server) usage(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 2*reachWithin)
	defer cancel()
	namespaces := r.URL.Query()["namespace"]
	slices.Sort(namespaces)
	asked, err := s.asked.get(strings.Join(namespaces, ","), func() (api.Usage, error) { return s.source.asked(ctx, namespaces) })
	if err != nil {
		fail(w, http.StatusBadGateway, metav1.StatusReasonServiceUnavailable, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(s.source.measured(ctx, asked, namespaces))
}

// asked is what pods ask for and nodes have, of those that the user may list.
func (s *Source) asked(ctx context.Context, namespaces []string) (api.Usage, error) {
	out := api.Usage{Pods: []api.PodUsage{}, Nodes: []api.NodeUsage{}}
	byNode := map[string]*api.NodeUsage{}
	err := s.within(ctx, namespaces, func(namespace string) error {
		list, err := s.clients.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return err
		}
		for i := range list.Items {
			pod := &list.Items[i]
			if pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
				continue
			}
			p := api.PodUsage{Namespace: pod.Namespace, Name: pod.Name,
				Requests: api.AmountsOf(podresource.PodRequests(pod, podresource.PodResourcesOptions{})),
				Limits:   api.AmountsOf(podresource.PodLimits(pod, podresource.PodResourcesOptions{}))}
			out.Pods = append(out.Pods, p)
			if byNode[pod.Spec.NodeName] == nil {
				byNode[pod.Spec.NodeName] = &api.NodeUsage{}
			}
			byNode[pod.Spec.NodeName].Requests.Add(p.Requests)
			byNode[pod.Spec.NodeName].Limits.Add(p.Limits)
		}
		return nil
	})
	if err != nil || len(namespaces) > 0 { // of some pods only, there are no sums by node
		return out, err
	}
	nodes, err := s.clients.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		if apierrors.IsForbidden(err) {
			err = nil
		}
		return out, err
	}
	for i := range nodes.Items {
		n := api.NodeUsage{Name: nodes.Items[i].Name, Allocatable: api.AmountsOf(nodes.Items[i].Status.Allocatable)}
		if sum := byNode[n.Name]; sum != nil {
			n.Requests, n.Limits = sum.Requests, sum.Limits
		}
		out.Nodes = append(out.Nodes, n)
	}
	return out, nil
}

// within does something in some namespaces, or in all at one go; who may not do that
// does it in each of theirs.
func (s *Source) within(ctx context.Context, namespaces []string, do func(namespace string) error) error {
	if len(namespaces) == 0 {
		err := do("")
		if !apierrors.IsForbidden(err) {
			return err
		}
		if namespaces, err = s.Namespaces(ctx); err != nil {
			return err
		}
	}
	for _, namespace := range namespaces {
		if err := do(namespace); err != nil && !apierrors.IsForbidden(err) {
			return err
		}
	}
	return nil
}

// measured is that with what is used; Error says why that is missing.
func (s *Source) measured(ctx context.Context, asked api.Usage, namespaces []string) api.Usage {
	pods, nodes := map[string]api.Amounts{}, map[string]api.Amounts{}
	err := s.within(ctx, namespaces, func(namespace string) error {
		path := metricsPath + "/pods"
		if namespace != "" {
			path = metricsPath + "/namespaces/" + namespace + "/pods"
		}
		var list metricsv1beta1.PodMetricsList
		err := s.metrics(ctx, path, &list)
		for _, m := range list.Items {
			var used api.Amounts
			for _, c := range m.Containers {
				used.Add(api.AmountsOf(c.Usage))
			}
			pods[m.Namespace+"/"+m.Name] = used
		}
		return err
	})
	if err == nil && len(asked.Nodes) > 0 {
		var list metricsv1beta1.NodeMetricsList
		err = s.metrics(ctx, metricsPath+"/nodes", &list)
		for _, m := range list.Items {
			nodes[m.Name] = api.AmountsOf(m.Usage)
		}
	}
	switch {
	case apierrors.IsNotFound(err):
		asked.Error = "this cluster does not serve metrics.k8s.io: nothing in it measures what is used"
	case err != nil:
		asked.Error = "metrics.k8s.io: " + err.Error()
	}
	asked.Pods, asked.Nodes = slices.Clone(asked.Pods), slices.Clone(asked.Nodes) // what is remembered stays
	for i := range asked.Pods {
		if used, ok := pods[asked.Pods[i].Namespace+"/"+asked.Pods[i].Name]; ok {
			asked.Pods[i].Used = &used
		}
	}
	for i := range asked.Nodes {
		if used, ok := nodes[asked.Nodes[i].Name]; ok {
			asked.Nodes[i].Used = &used
		}
	}
	return asked
}

func (s *Source) metrics(ctx context.Context, path string, list any) error {
	data, err := s.plain.Get().AbsPath(path).SetHeader("Accept", "application/json").DoRaw(ctx)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, list)
}

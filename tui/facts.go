package tui

import (
	"context"
	"fmt"
	"slices"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
)

// facts are what the header says of the cluster.
type facts struct {
	seen       bool
	version    string
	user       string
	namespaces []string
}

// survey asks for the facts and the kinds. What the user may not see stays
// empty; the error is the first that matters for working at all.
func (c *cluster) survey(ctx context.Context) (facts, []*metav1.APIResourceList, error) {
	var f facts
	lists, err := discovery.ServerPreferredResources(c.find)
	if len(lists) == 0 && err != nil {
		return f, nil, fmt.Errorf("discovery: %w", err)
	}
	if v, err := c.find.ServerVersion(); err == nil {
		f.version = v.GitVersion
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	who, err := c.kube.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authnv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err == nil {
		f.user = who.Status.UserInfo.Username
	}
	all, err := c.kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err == nil {
		for _, ns := range all.Items {
			f.namespaces = append(f.namespaces, ns.Name)
		}
		slices.Sort(f.namespaces)
	}
	return f, lists, nil
}

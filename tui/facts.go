package tui

import (
	"context"
	"fmt"
	"slices"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"

	"orrery.dev/api"
)

// facts are what the header says of the cluster.
type facts struct {
	seen       bool
	version    string
	user       string
	namespaces []string
	confined   bool // the user may list no namespaces: these are those that something may be seen in
}

// survey asks for the facts and the kinds. What the user may not see stays
// empty; the error is the first that matters for working at all.
func (c *cluster) survey(ctx context.Context, ask asker) (facts, []*metav1.APIResourceList, error) {
	var f facts
	find := discovery.ToDiscoveryInterfaceWithContext(c.find)
	lists, err := discovery.ServerPreferredResourcesWithContext(ctx, find)
	if len(lists) == 0 && err != nil {
		return f, nil, fmt.Errorf("discovery: %w", err)
	}
	if v, err := find.ServerVersionWithContext(ctx); err == nil {
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
	} else if apierrors.IsForbidden(err) {
		var mine api.Namespaces
		if ask(ctx, api.NamespacesPath, nil, &mine) == nil {
			f.namespaces, f.confined = mine.Names, true
		}
	}
	slices.Sort(f.namespaces)
	return f, lists, nil
}

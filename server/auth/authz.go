package auth

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Authorizer decides what users may do: system:masters everything, nodes what
// their pods need, everyone what RBAC grants.
type Authorizer struct {
	source Source
	rbac   *RBAC
	nodes  *nodeAuthorizer
	synced chan struct{} // closed when everything was read once
}

var (
	_ authorizer.Authorizer   = (*Authorizer)(nil)
	_ authorizer.RuleResolver = (*Authorizer)(nil)
)

// NewAuthorizer makes an authoriser; Run fills it and keeps it up to date.
func NewAuthorizer(source Source) (*Authorizer, error) {
	roles, err := BootstrapRoles()
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(roles.ClusterRoles, func(r *rbacv1.ClusterRole) bool { return r.Name == "system:node" })
	if at < 0 {
		return nil, fmt.Errorf("bootstrap roles: no system:node")
	}
	return &Authorizer{
		source: source,
		rbac:   NewRBAC(),
		nodes:  &nodeAuthorizer{graph: newGraph(), rules: roles.ClusterRoles[at].Rules},
		synced: make(chan struct{}),
	}, nil
}

// follows is all that is followed, and by whom.
func (a *Authorizer) follows() map[schema.GroupResource]func([]Change, bool) {
	all := map[schema.GroupResource]func([]Change, bool){
		core("pods"):              a.nodes.graph.applyPods,
		core("persistentvolumes"): a.nodes.graph.applyVolumes,
		{Group: "storage.k8s.io", Resource: "volumeattachments"}:           a.nodes.graph.applyAttachments,
		{Group: "resource.k8s.io", Resource: "resourceslices"}:             a.nodes.graph.applySlices,
		{Group: "certificates.k8s.io", Resource: "podcertificaterequests"}: a.nodes.graph.applyRequests,
	}
	for _, kind := range []string{"clusterroles", "clusterrolebindings", "roles", "rolebindings"} {
		all[rbac(kind)] = func(changes []Change, reset bool) { a.rbac.apply(kind, changes, reset) }
	}
	return all
}

// Run follows what decisions are made by, until ctx ends.
func (a *Authorizer) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	follows := a.follows()
	var first, running sync.WaitGroup
	failed := make(chan error, len(follows))
	first.Add(len(follows))
	for resource, apply := range follows {
		running.Go(func() {
			var once sync.Once
			failed <- a.source.Follow(ctx, resource, func(changes []Change, reset bool) {
				apply(changes, reset)
				once.Do(first.Done)
			})
			once.Do(first.Done)
		})
	}
	running.Go(func() {
		first.Wait()
		if ctx.Err() == nil {
			close(a.synced)
		}
	})
	err := <-failed
	cancel()
	running.Wait()
	return err
}

// Synced is closed when all roles and bindings have been read once: before,
// only system:masters is allowed anything.
func (a *Authorizer) Synced() <-chan struct{} { return a.synced }

// Authorize returns allow or no opinion (which is a refusal) with the reasons.
func (a *Authorizer) Authorize(ctx context.Context, attrs authorizer.Attributes) (authorizer.Decision, string, error) {
	if who := attrs.GetUser(); who != nil && slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup) {
		return authorizer.DecisionAllow, "", nil
	}
	decision, nodeReason, err := a.nodes.Authorize(ctx, attrs)
	if err != nil || decision == authorizer.DecisionAllow {
		return decision, nodeReason, err
	}
	decision, reason, err := a.rbac.Authorize(ctx, attrs)
	if decision == authorizer.DecisionAllow || nodeReason == "" {
		return decision, reason, err
	}
	return decision, strings.TrimSuffix(nodeReason+"\n"+reason, "\n"), err
}

// ConditionsAwareAuthorize is Authorize: no decision here has conditions.
func (a *Authorizer) ConditionsAwareAuthorize(ctx context.Context, attrs authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(a.Authorize(ctx, attrs))
}

// EvaluateConditions refuses: no decision here has conditions.
func (a *Authorizer) EvaluateConditions(context.Context, authorizer.ConditionsAwareDecision, authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", authorizer.ErrorConditionEvaluationNotSupported
}

// RulesFor lists what a user may do in a namespace.
func (a *Authorizer) RulesFor(ctx context.Context, who user.Info, namespace string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	resources, urls, incomplete, err := a.rbac.RulesFor(ctx, who, namespace)
	if slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup) {
		all := []string{"*"}
		resources = append(resources, &authorizer.DefaultResourceRuleInfo{Verbs: all, APIGroups: all, Resources: all})
		urls = append(urls, &authorizer.DefaultNonResourceRuleInfo{Verbs: all, NonResourceURLs: all})
	}
	if _, isNode := nodeName(who); isNode {
		// What a node may read depends on its pods and cannot be listed.
		incomplete = true
	}
	return resources, urls, incomplete, err
}

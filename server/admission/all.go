package admission

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"orrery.dev/server/registry"
)

// Config is what the plugins need.
type Config struct {
	Reader    Reader
	Writer    Writer
	Addresses *Addresses
	// Authorizer answers whether users may act for certificate signers, and the
	// match conditions of webhooks.
	Authorizer authorizer.UnconditionalAuthorizer
	// Kinds converts objects to the versions that webhooks want; nil: they are
	// shown the stored version.
	Kinds *registry.Table
	// Types knows the schemas of kinds, by which policies merge what they apply;
	// nil: they can only make patches.
	Types func(*registry.Kind) (managedfields.TypeConverter, error)
	// CheckGrant refuses roles and bindings that hand out more than their
	// author has; nil: all may.
	CheckGrant func(ctx context.Context, who user.Info, obj, old runtime.Object) error
}

// All is the plugins in running order: first every Mutate, then, after
// validation, every Validate. A quota comes last, since it books what passes.
func All(c Config) (Chain, error) {
	security, err := podSecurity(c.Reader)
	if err != nil {
		return nil, fmt.Errorf("admission: %w", err)
	}
	chain := Chain{
		namespaceLifecycle(c.Reader),
		limitRanger(c.Reader),
		serviceAccount(c.Reader),
		nodeRestriction(c.Reader, c.Authorizer),
		taintNodesByCondition(),
		security,
		priority(c.Reader),
		defaultTolerationSeconds(),
		defaultStorageClass(c.Reader),
		storageObjectInUseProtection(),
		persistentVolumeClaimResize(c.Reader),
		runtimeClass(c.Reader),
		certificateApproval(c.Authorizer),
		certificateSigning(c.Authorizer),
		clusterTrustBundleAttest(c.Authorizer),
		certificateSubjectRestriction(),
		defaultIngressClass(c.Reader),
		podTopologyLabels(c.Reader),
		podResize(c.Reader),
	}
	hooks := newWebhooks(c.Reader, c.Kinds, c.Authorizer)
	policies := newPolicies(hooks, c.Types)
	chain = append(chain,
		policies.mutating(),
		hooks.mutating(),
		// After the webhooks, what must see what those made of the object.
		c.Addresses.plugin(),
	)
	if c.CheckGrant != nil {
		chain = append(chain, grantCheck(c.CheckGrant))
	}
	return append(chain, policies.validating(), hooks.validating(), resourceQuota(c.Reader, c.Writer)), nil
}

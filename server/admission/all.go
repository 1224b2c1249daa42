package admission

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Config is what the plugins need.
type Config struct {
	Reader    Reader
	Writer    Writer
	Addresses *Addresses
	// Authorizer answers whether users may act for certificate signers.
	Authorizer authorizer.UnconditionalAuthorizer
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
		nodeRestriction(c.Reader),
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
		// Here mutating policies and webhooks have their place, and after them
		// the plugins that must see what those made of the object.
		c.Addresses.plugin(),
	}
	if c.CheckGrant != nil {
		chain = append(chain, grantCheck(c.CheckGrant))
	}
	// Here validating policies and webhooks have theirs.
	return append(chain, resourceQuota(c.Reader, c.Writer)), nil
}

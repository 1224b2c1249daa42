package admission

import (
	"context"
	"errors"
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
	// TolerationSeconds is how long pods that say nothing about it stay on a node
	// with a taint, by the taint's key: those for not ready and unreachable nodes.
	TolerationSeconds map[string]int64
	// Choice says which plugins run, and how they are configured. The zero value
	// is the default set.
	Choice Choice
}

// row is a plugin as administrators know it.
type row struct {
	Plugin
	off    bool // unless it is asked for
	always bool // a part of the server: nobody can switch it off
	// make is for plugins that have a configuration, nil if there is none.
	make func(raw []byte) (Plugin, error)
}

// All is the plugins in running order: first every Mutate, then, after
// validation, every Validate. A quota comes last, since it books what passes.
func All(c Config) (Chain, error) {
	rows := c.rows()
	var known []string
	for _, r := range rows {
		if !r.always {
			known = append(known, r.Name)
		}
	}
	if err := c.Choice.check(known); err != nil {
		return nil, err
	}
	var chain Chain
	for _, r := range rows {
		switch {
		case !r.always && !c.Choice.enabled(r.Name, !r.off):
			continue
		case r.make != nil:
			p, err := r.make(c.Choice.Configurations[r.Name])
			if err != nil {
				return nil, fmt.Errorf("couldn't init admission plugin %q: %w", r.Name, err)
			}
			p.Name = r.Name
			r.Plugin = p
		}
		if r.Mutate != nil || r.Validate != nil {
			chain = append(chain, r.Plugin)
		}
	}
	return chain, nil
}

// rows are all plugins. Names without a plugin are of what is not there, or always
// so, by default.
func (c Config) rows() []row {
	on := func(p Plugin) row { return row{Plugin: p} }
	off := func(p Plugin) row { return row{Plugin: p, off: true} }
	configured := func(name string, off bool, make func([]byte) (Plugin, error)) row {
		return row{Plugin: Plugin{Name: name}, off: off, make: make}
	}
	hooks := newWebhooks(c.Reader, c.Kinds, c.Authorizer)
	policies := newPolicies(hooks, c.Types)
	rows := []row{
		off(Plugin{Name: "AlwaysAdmit"}),
		off(namespaceAutoProvision(c.Reader, c.Writer)),
		on(namespaceLifecycle(c.Reader)),
		off(namespaceExists(c.Reader)),
		off(limitAntiAffinity()),
		on(limitRanger(c.Reader)),
		on(serviceAccount(c.Reader)),
		off(nodeRestriction(c.Reader, c.Authorizer)),
		on(taintNodesByCondition()),
		off(alwaysPullImages()),
		configured("ImagePolicyWebhook", true, imagePolicy),
		configured("PodSecurity", false, func(raw []byte) (Plugin, error) { return podSecurity(c.Reader, raw) }),
		configured("PodNodeSelector", true, func(raw []byte) (Plugin, error) { return podNodeSelector(c.Reader, raw) }),
		on(priority(c.Reader)),
		on(defaultTolerationSeconds(c.TolerationSeconds)),
		configured("PodTolerationRestriction", true, func(raw []byte) (Plugin, error) { return podTolerations(c.Reader, raw) }),
		configured("EventRateLimit", true, eventRateLimit),
		off(extendedResourceToleration()),
		on(defaultStorageClass(c.Reader)),
		on(storageObjectInUseProtection()),
		on(Plugin{Name: "PodGroupProtection"}),
		off(ownerReferences(c.Kinds, c.Authorizer)),
		on(persistentVolumeClaimResize(c.Reader)),
		on(runtimeClass(c.Reader)),
		on(certificateApproval(c.Authorizer)),
		on(certificateSigning(c.Authorizer)),
		on(clusterTrustBundleAttest(c.Authorizer)),
		on(certificateSubjectRestriction()),
		on(defaultIngressClass(c.Reader)),
		off(denyExternalIPs()),
		on(podTopologyLabels(c.Reader)),
		on(nodeDeclaredFeatures(c.Reader)),
		on(podResize(c.Reader)),
		on(policies.mutating()),
		configured("MutatingAdmissionWebhook", false, hooks.configured((*webhooks).mutating)),
		// After the webhooks, what must see what those made of the object.
		{Plugin: c.Addresses.plugin(), always: true},
	}
	if c.Kinds != nil {
		rows = append(rows, row{Plugin: paramRights(c.Reader, c.Kinds, c.Authorizer), always: true})
	}
	if c.Authorizer != nil {
		rows = append(rows, row{Plugin: deviceRights(c.Reader, c.Authorizer), always: true})
	}
	if c.CheckGrant != nil {
		rows = append(rows, row{Plugin: grantCheck(c.CheckGrant), always: true})
	}
	return append(rows,
		on(policies.validating()),
		configured("ValidatingAdmissionWebhook", false, hooks.configured((*webhooks).validating)),
		configured("ResourceQuota", false, func(raw []byte) (Plugin, error) { return resourceQuota(c.Reader, c.Writer, raw) }),
		off(alwaysDeny()),
	)
}

func alwaysDeny() Plugin {
	deny := func(_ context.Context, r *Request) error {
		return r.forbid("%w", errors.New("admission control is denying all modifications"))
	}
	return Plugin{Name: "AlwaysDeny", Mutate: deny, Validate: deny}
}

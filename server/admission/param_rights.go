package admission

import (
	"context"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"orrery.dev/server/registry"
)

// paramRights lets nobody read objects by way of a policy: who writes one with
// parameters, or a binding that chooses them, must be allowed to read these.
func paramRights(reader Reader, kinds *registry.Table, authz authorizer.UnconditionalAuthorizer) Plugin {
	p := params{reader, kinds, authz}
	return Plugin{
		Name: "ParamRights",
		On: func(r *Request) bool {
			return r.Resource.Group == admissionregistrationv1.GroupName && r.Subresource == "" && (r.Operation == Create || r.Operation == Update) &&
				r.User != nil && !slices.Contains(r.User.GetGroups(), user.SystemPrivilegedGroup)
		},
		Validate: func(ctx context.Context, r *Request) error {
			at, err := "paramKind", p.checkPolicy(ctx, r)
			if err == nil {
				at, err = "paramRef", p.checkBinding(ctx, r)
			}
			if err == nil {
				return nil
			}
			return apierrors.NewInvalid(r.Kind.GroupKind(), r.Name, field.ErrorList{field.Forbidden(field.NewPath("spec", at), err.Error())})
		},
	}
}

type params struct {
	reader Reader
	kinds  *registry.Table
	authz  authorizer.UnconditionalAuthorizer
}

func paramKindOf(policy runtime.Object) *admissionregistrationv1.ParamKind {
	switch o := policy.(type) {
	case *admissionregistrationv1.ValidatingAdmissionPolicy:
		return o.Spec.ParamKind
	case *admissionregistrationv1.MutatingAdmissionPolicy:
		return o.Spec.ParamKind
	}
	return nil
}

// paramRefOf is what a binding chooses, and the policy that it is a binding of.
func paramRefOf(binding runtime.Object) (ref *admissionregistrationv1.ParamRef, policies, name string) {
	switch o := binding.(type) {
	case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
		return o.Spec.ParamRef, "validatingadmissionpolicies", o.Spec.PolicyName
	case *admissionregistrationv1.MutatingAdmissionPolicyBinding:
		return o.Spec.ParamRef, "mutatingadmissionpolicies", o.Spec.PolicyName
	}
	return nil, "", ""
}

// resource is what a kind of parameters is called in rules: as much of it as is
// known, and * for the rest.
func (p params) resource(kind *admissionregistrationv1.ParamKind) (of schema.GroupVersionResource, unparsed, unresolved error) {
	of = schema.GroupVersionResource{Group: "*", Version: "*", Resource: "*"}
	gv, err := schema.ParseGroupVersion(kind.APIVersion)
	if err != nil {
		return of, err, nil
	}
	of.Group, of.Version = gv.Group, gv.Version
	row := p.kinds.FindKind(gv.WithKind(kind.Kind))
	if row == nil {
		return of, nil, fmt.Errorf("no resource of kind %s", kind.Kind)
	}
	of.Resource = row.GroupVersionResource().Resource
	return of, nil, nil
}

func (p params) may(ctx context.Context, r *Request, verb string, of schema.GroupVersionResource, namespace, name string) (bool, error) {
	decision, _, err := p.authz.Authorize(ctx, authorizer.AttributesRecord{
		User: r.User, Verb: verb, Namespace: namespace, Name: name, APIGroup: of.Group, APIVersion: of.Version, Resource: of.Resource, ResourceRequest: true,
	})
	return decision == authorizer.DecisionAllow, err
}

func (p params) checkPolicy(ctx context.Context, r *Request) error {
	kind, old := paramKindOf(r.Object), paramKindOf(r.Old)
	if kind == nil || old != nil && *old == *kind {
		return nil
	}
	of, _, _ := p.resource(kind)
	ok, err := p.may(ctx, r, "get", of, "*", "*")
	if err == nil && !ok {
		err = fmt.Errorf(`user %v must have "get" permission on all objects of the referenced paramKind (kind=%s, apiVersion=%s)`, r.User, kind.Kind, kind.APIVersion)
	}
	return err
}

func (p params) checkBinding(ctx context.Context, r *Request) error {
	ref, policies, name := paramRefOf(r.Object)
	old, _, oldName := paramRefOf(r.Old)
	if ref == nil || old != nil && *old == *ref && oldName == name {
		return nil
	}
	of := schema.GroupVersionResource{Group: "*", Version: "*", Resource: "*"}
	var unparsed, unresolved error
	var kind *admissionregistrationv1.ParamKind
	policy, missing := p.reader.Get(ctx, schema.GroupResource{Group: admissionregistrationv1.GroupName, Resource: policies}, "", name)
	if missing == nil {
		if kind = paramKindOf(policy); kind != nil {
			of, unparsed, unresolved = p.resource(kind)
		}
	}
	verb := "get"
	if ref.Name == "" {
		verb = "list"
	}
	ok, err := p.may(ctx, r, verb, of, ref.Namespace, ref.Name)
	all := fmt.Sprintf(`to determine minimum required permissions and user %v does not have "%v" permission for all groups, versions and resources`, r.User, verb)
	switch {
	case err != nil:
		return fmt.Errorf("failed to authorize request: %w", err)
	case ok:
		return nil
	case missing != nil:
		return fmt.Errorf("unable to get policy %s %s", name, all)
	case unparsed != nil:
		return fmt.Errorf("unable to parse paramKind %v %s", kind, all)
	case unresolved != nil:
		return fmt.Errorf("unable to resolve paramKind %v %s", kind, all)
	}
	return fmt.Errorf(`user %v does not have "%v" permission on the object referenced by paramRef`, r.User, verb)
}

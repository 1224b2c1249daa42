package admission

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
)

// grantCheck refuses writes of roles and bindings that hand out more than their
// author has. check is package auth's.
func grantCheck(check func(ctx context.Context, who user.Info, obj, old runtime.Object) error) Plugin {
	return Plugin{
		Name: "GrantCheck",
		On: func(r *Request) bool {
			return r.Resource.Group == rbacv1.GroupName && (r.Operation == Create || r.Operation == Update)
		},
		Validate: func(ctx context.Context, r *Request) error { return check(ctx, r.User, r.Object, r.Old) },
	}
}

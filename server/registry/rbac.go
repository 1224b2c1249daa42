package registry

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validation/path"

	"orrery.dev/api"
)

func rbacKinds() []*Kind {
	gv := rbacv1.SchemeGroupVersion
	// Role names like "system:node" are anything that fits into a path.
	name := path.ValidatePathSegmentName
	return []*Kind{
		kind[rbacv1.ClusterRole, rbacv1.ClusterRoleList]{
			Plural: "clusterroles", Cluster: true, ValidName: name, CreateOnUpdate: true,
			Validate: api.ValidateClusterRole,
		}.erase(gv),
		kind[rbacv1.ClusterRoleBinding, rbacv1.ClusterRoleBindingList]{
			Plural: "clusterrolebindings", Cluster: true, ValidName: name, CreateOnUpdate: true,
			Validate: api.ValidateClusterRoleBinding,
			Columns:  bindingColumns(), Row: clusterRoleBindingRow,
			Default: api.DefaultClusterRoleBinding,
		}.erase(gv),
		kind[rbacv1.Role, rbacv1.RoleList]{
			Plural: "roles", ValidName: name, CreateOnUpdate: true,
			Validate: api.ValidateRole,
		}.erase(gv),
		kind[rbacv1.RoleBinding, rbacv1.RoleBindingList]{
			Plural: "rolebindings", ValidName: name, CreateOnUpdate: true,
			Validate: api.ValidateRoleBinding,
			Columns:  bindingColumns(), Row: roleBindingRow,
			Default: api.DefaultRoleBinding,
		}.erase(gv),
	}
}

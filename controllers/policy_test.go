package controllers

import (
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// writtenTypes are the kinds of one OpenAPI document.
type writtenTypes string

func (w writtenTypes) kindOf(r schema.GroupVersionResource) (schema.GroupVersionKind, error) {
	kind := map[string]string{"gardens": "Garden", "rules": "Rule"}[r.Resource]
	if kind == "" {
		return schema.GroupVersionKind{}, nil
	}
	return r.GroupVersion().WithKind(kind), nil
}

func (w writtenTypes) schemaOf(kind schema.GroupVersionKind) (*spec.Schema, error) {
	return schemaIn([]byte(w), kind)
}

const gardens = `{"components": {"schemas": {
	"Garden": {"type": "object", "x-kubernetes-group-version-kind": [{"group": "example.com", "version": "v1", "kind": "Garden"}], "properties": {
		"spec": {"allOf": [{"$ref": "#/components/schemas/GardenSpec"}]}}},
	"GardenSpec": {"type": "object", "properties": {
		"trees": {"type": "integer"}, "beds": {"type": "array", "items": {"$ref": "#/components/schemas/Bed"}},
		"owners": {"type": "object", "additionalProperties": {"type": "string"}}}},
	"Bed": {"type": "object", "properties": {"name": {"type": "string"}, "within": {"$ref": "#/components/schemas/Bed"}}},
	"Rule": {"type": "object", "x-kubernetes-group-version-kind": [{"group": "example.com", "version": "v1", "kind": "Rule"}], "properties": {
		"most": {"type": "integer"}}}
}}}`

func TestPolicyTypes(t *testing.T) {
	for name, tc := range map[string]struct {
		expression, message string
		variables           []admissionregistrationv1.Variable
		resource            string
		want                []string // fieldRef: part of the warning
	}{
		"right":             {expression: "object.spec.trees < params.most && request.operation == 'CREATE' && namespaceObject.metadata.name != ''"},
		"type confusion":    {expression: "object.spec.trees > '1'", want: []string{"spec.validations[0].expression: found no matching overload for '_>_' applied to '(int, string)'"}},
		"no such field":     {expression: "object.spec.shrubs > 1", want: []string{"spec.validations[0].expression: undefined field 'shrubs'"}},
		"in a list":         {expression: "object.spec.beds.all(b, b.nam != '')", want: []string{"spec.validations[0].expression: undefined field 'nam'"}},
		"in a map":          {expression: "object.spec.owners['a'] > 1", want: []string{"spec.validations[0].expression: found no matching overload for '_>_' applied to '(string, int)'"}},
		"a type in itself":  {expression: "object.spec.beds[0].within == oldObject.spec.beds[0].within"},
		"param":             {expression: "params.least > 1", want: []string{"spec.validations[0].expression: undefined field 'least'"}},
		"message":           {expression: "true", message: "'got ' + object.spec.trees", want: []string{"spec.validations[0].messageExpression: found no matching overload for '_+_' applied to '(string, int)'"}},
		"variables":         {expression: "variables.many", variables: []admissionregistrationv1.Variable{{Name: "trees", Expression: "object.spec.trees"}, {Name: "many", Expression: "variables.trees > 3"}}},
		"wrong variable":    {expression: "variables.trees == 'x'", variables: []admissionregistrationv1.Variable{{Name: "trees", Expression: "object.spec.trees"}}, want: []string{"spec.validations[0].expression: found no matching overload for '_==_' applied to '(int, string)'"}},
		"authorizer":        {expression: "authorizer.group('').resource('pods').check('get').allowed()"},
		"any resource":      {expression: "object.spec.shrubs > 1", resource: "*"},
		"unserved resource": {expression: "object.spec.shrubs > 1", resource: "pools"},
		"a subresource":     {expression: "object.spec.shrubs > 1", resource: "gardens/status"},
	} {
		resource := tc.resource
		if resource == "" {
			resource = "gardens"
		}
		policy := &admissionregistrationv1.ValidatingAdmissionPolicy{Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			ParamKind: &admissionregistrationv1.ParamKind{APIVersion: "example.com/v1", Kind: "Rule"},
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{Rule: admissionregistrationv1.Rule{
					APIGroups: []string{"example.com"}, APIVersions: []string{"v1"}, Resources: []string{resource},
				}},
			}}},
			Variables:   tc.variables,
			Validations: []admissionregistrationv1.Validation{{Expression: tc.expression, MessageExpression: tc.message}},
		}}
		got, err := checkPolicy(policy, writtenTypes(gardens))
		if err != nil || len(got) != len(tc.want) {
			t.Errorf("%s: %v %+v", name, err, got)
			continue
		}
		for i, w := range got {
			ref, text, _ := strings.Cut(tc.want[i], ": ")
			if w.FieldRef != ref || !strings.Contains(w.Warning, text) || !strings.HasPrefix(w.Warning, "example.com/v1, Kind=Garden: ERROR: <input>:1:") {
				t.Errorf("%s: %+v", name, w)
			}
		}
	}
}

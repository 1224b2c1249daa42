package registry

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
)

// The kinds of this file are questions: they are posted and answered, and
// stored nowhere. The server has a handler for each.

func authenticationKinds() []*Kind {
	gv := authenticationv1.SchemeGroupVersion
	return []*Kind{
		kind[authenticationv1.SelfSubjectReview, authenticationv1.SelfSubjectReview]{
			Plural: "selfsubjectreviews", Cluster: true, Verbs: createOnly,
		}.erase(gv),
		kind[authenticationv1.TokenReview, authenticationv1.TokenReview]{
			Plural: "tokenreviews", Cluster: true, Verbs: createOnly,
		}.erase(gv),
	}
}

func authorizationKinds() []*Kind {
	gv := authorizationv1.SchemeGroupVersion
	return []*Kind{
		kind[authorizationv1.LocalSubjectAccessReview, authorizationv1.LocalSubjectAccessReview]{
			Plural: "localsubjectaccessreviews", Verbs: createOnly,
		}.erase(gv),
		kind[authorizationv1.SelfSubjectAccessReview, authorizationv1.SelfSubjectAccessReview]{
			Plural: "selfsubjectaccessreviews", Cluster: true, Verbs: createOnly,
		}.erase(gv),
		kind[authorizationv1.SelfSubjectRulesReview, authorizationv1.SelfSubjectRulesReview]{
			Plural: "selfsubjectrulesreviews", Cluster: true, Verbs: createOnly,
		}.erase(gv),
		kind[authorizationv1.SubjectAccessReview, authorizationv1.SubjectAccessReview]{
			Plural: "subjectaccessreviews", Cluster: true, Verbs: createOnly,
		}.erase(gv),
	}
}

package auth

import (
	"errors"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
)

// decodeConfig reads a configuration of the group apiserver.config.k8s.io, in any
// of its versions.
func decodeConfig[T runtime.Object](raw []byte) (T, error) {
	var none T
	if len(raw) == 0 {
		return none, errors.New("empty config data")
	}
	scheme := runtime.NewScheme()
	install.Install(scheme)
	obj, err := runtime.Decode(serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder(), raw)
	if err != nil {
		return none, err
	}
	config, ok := obj.(T)
	if !ok {
		return none, fmt.Errorf("expected %s, got %s", kindName(none), kindName(obj))
	}
	return config, nil
}

func kindName(obj runtime.Object) string { return reflect.TypeOf(obj).Elem().Name() }

// ParseAuthentication reads and checks an AuthenticationConfiguration. Issuers of
// service account tokens cannot be others' as well.
func ParseAuthentication(raw []byte, serviceAccountIssuers []string) (*apiserver.AuthenticationConfiguration, error) {
	config, err := decodeConfig[*apiserver.AuthenticationConfiguration](raw)
	if err != nil {
		return nil, err
	}
	return config, checkAuthentication(config, serviceAccountIssuers).ToAggregate()
}

func checkAuthentication(config *apiserver.AuthenticationConfiguration, serviceAccountIssuers []string) field.ErrorList {
	return validation.ValidateAuthenticationConfiguration(authenticationcel.NewDefaultCompiler(), config, serviceAccountIssuers)
}

// OIDC is an issuer as the flags of kube-apiserver describe it.
type OIDC struct {
	Issuer, ClientID              string
	CA                            []byte // PEM; none: the host's
	UsernameClaim, UsernamePrefix string
	GroupsClaim, GroupsPrefix     string
	RequiredClaims                map[string]string
}

// Configuration is the same as a file has it, checked.
func (o OIDC) Configuration(serviceAccountIssuers []string) (*apiserver.AuthenticationConfiguration, error) {
	prefix := o.UsernamePrefix
	switch {
	case prefix == "-": // none
		prefix = ""
	case prefix == "" && o.UsernameClaim != "email":
		prefix = o.Issuer + "#"
	}
	issuer := apiserver.JWTAuthenticator{
		Issuer: apiserver.Issuer{URL: o.Issuer, Audiences: []string{o.ClientID}, CertificateAuthority: string(o.CA)},
		ClaimMappings: apiserver.ClaimMappings{
			Username: apiserver.PrefixedClaimOrExpression{Prefix: &prefix, Claim: o.UsernameClaim},
		},
	}
	if o.GroupsClaim != "" {
		issuer.ClaimMappings.Groups = apiserver.PrefixedClaimOrExpression{Prefix: &o.GroupsPrefix, Claim: o.GroupsClaim}
	}
	for claim, value := range o.RequiredClaims {
		issuer.ClaimValidationRules = append(issuer.ClaimValidationRules, apiserver.ClaimValidationRule{Claim: claim, RequiredValue: value})
	}
	config := &apiserver.AuthenticationConfiguration{JWT: []apiserver.JWTAuthenticator{issuer}}
	return config, checkAuthentication(config, serviceAccountIssuers).ToAggregate()
}

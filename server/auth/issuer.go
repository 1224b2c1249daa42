package auth

import (
	"context"
	"crypto"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"orrery.dev/api"
	"orrery.dev/server/audit"
)

const (
	// projectedLife is what admission asks for in the token volume of a pod. A
	// token for the API server asked with just this number is given a year, and
	// warned about after an hour: old clients do not re-read their token.
	projectedLife = 3607
	extendedLife  = 365 * 24 * 60 * 60
	minTokenLife  = 10 * 60
	maxTokenLife  = 1 << 32
)

// IssuerConfig says how tokens are made.
type IssuerConfig struct {
	URL       string        // "https://kubernetes.default.svc.cluster.local"
	Also      []string      // issuers whose tokens are good too
	Key       crypto.Signer // signs new tokens
	Others    []crypto.PublicKey
	Audiences []string // of the API server; nil: URL and Also
	// MaxLife bounds the life of tokens; 0: as long as one asks for. NotExtended
	// gives the tokens of pods no more than they ask for either.
	MaxLife     time.Duration
	NotExtended bool
	// JWKSURL is where the keys are, for openid-configuration; "": below URL.
	JWKSURL string
	Reader  Reader
	// Writer, if set, notes on Secrets with tokens when those were last used.
	Writer Writer
}

// Issuer signs service account tokens and publishes what they are checked with.
type Issuer struct {
	config IssuerConfig
	keys   []verificationKey // the signing key's first
	uses   tokenUses
}

// NewIssuer makes an issuer. Others are keys of tokens issued earlier or
// elsewhere, which stay good.
func NewIssuer(c IssuerConfig) (*Issuer, error) {
	if len(c.Audiences) == 0 {
		c.Audiences = append([]string{c.URL}, c.Also...)
	}
	if c.JWKSURL == "" {
		c.JWKSURL = strings.TrimSuffix(c.URL, "/") + "/openid/v1/jwks"
	}
	i := &Issuer{config: c, uses: newTokenUses()}
	known := map[string]bool{}
	for _, public := range append([]crypto.PublicKey{c.Key.Public()}, c.Others...) {
		key, err := newVerificationKey(public)
		if err != nil {
			return nil, fmt.Errorf("service account key: %w", err)
		}
		if !known[key.id] {
			known[key.id] = true
			i.keys = append(i.keys, key)
		}
	}
	return i, nil
}

// KeySet is the document at /openid/v1/jwks.
func (i *Issuer) KeySet() ([]byte, error) { return keySet(i.keys) }

// Discovery is the document at /.well-known/openid-configuration.
func (i *Issuer) Discovery() ([]byte, error) {
	var algorithms []string
	for _, k := range i.keys {
		if alg := k.method.Alg(); !slices.Contains(algorithms, alg) {
			algorithms = append(algorithms, alg)
		}
	}
	return json.Marshal(map[string]any{
		"issuer":                                i.config.URL,
		"jwks_uri":                              i.config.JWKSURL,
		"response_types_supported":              []string{"id_token"},
		"subject_types_supported":               []string{"public"},
		"id_token_signing_alg_values_supported": algorithms,
	})
}

// claims are the content of a token.
type claims struct {
	jwt.RegisteredClaims
	Kubernetes boundTo `json:"kubernetes.io"`
}

// boundTo names the objects that must exist for a token to be good.
type boundTo struct {
	Namespace      string           `json:"namespace,omitempty"`
	Node           *objectRef       `json:"node,omitempty"`
	Pod            *objectRef       `json:"pod,omitempty"`
	Secret         *objectRef       `json:"secret,omitempty"`
	ServiceAccount objectRef        `json:"serviceaccount"`
	WarnAfter      *jwt.NumericDate `json:"warnafter,omitempty"`
}

type objectRef struct {
	Name string    `json:"name,omitempty"`
	UID  types.UID `json:"uid,omitempty"`
}

// Issue answers a TokenRequest for a service account. The answer is a new
// object; errors are StatusErrors.
func (i *Issuer) Issue(ctx context.Context, account *corev1.ServiceAccount, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	answer := request.DeepCopy()
	answer.Name, answer.Namespace, answer.UID = account.Name, account.Namespace, account.UID
	answer.CreationTimestamp = metav1.Now()
	spec := &answer.Spec
	if len(spec.Audiences) == 0 {
		spec.Audiences = i.config.Audiences
	}
	api.DefaultTokenRequest(answer)
	if errs := validateTokenRequest(spec); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: "authentication.k8s.io", Kind: "TokenRequest"}, "", errs)
	}
	bound, err := i.bind(ctx, account, spec.BoundObjectRef)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	if most := int64(i.config.MaxLife.Seconds()); most > 0 && *spec.ExpirationSeconds > most {
		*spec.ExpirationSeconds = most
	}
	life := *spec.ExpirationSeconds
	if !i.config.NotExtended && bound.Pod != nil && life == projectedLife && i.forAPIServer(spec.Audiences) {
		bound.WarnAfter = jwt.NewNumericDate(now.Add(projectedLife * time.Second))
		life = extendedLife
	}
	id := string(uuid.NewUUID())
	audit.Annotate(ctx, serviceaccount.IssuedCredentialIDAuditAnnotationKey, "JTI="+id)
	token, err := i.sign(claims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer:    i.config.URL,
			Subject:   "system:serviceaccount:" + account.Namespace + ":" + account.Name,
			Audience:  spec.Audiences,
			IssuedAt:  jwt.NewNumericDate(now),
			NotBefore: jwt.NewNumericDate(now),
			ExpiresAt: jwt.NewNumericDate(now.Add(time.Duration(life) * time.Second)),
			ID:        id,
		},
		Kubernetes: bound,
	})
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("sign token: %w", err))
	}
	answer.Status = authenticationv1.TokenRequestStatus{
		Token:               token,
		ExpirationTimestamp: metav1.NewTime(now.Add(time.Duration(*spec.ExpirationSeconds) * time.Second)),
	}
	return answer, nil
}

func validateTokenRequest(spec *authenticationv1.TokenRequestSpec) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("spec", "expirationSeconds")
	if *spec.ExpirationSeconds < minTokenLife {
		errs = append(errs, field.Invalid(path, *spec.ExpirationSeconds, "may not specify a duration less than 10 minutes"))
	}
	if *spec.ExpirationSeconds > maxTokenLife {
		errs = append(errs, field.Invalid(path, *spec.ExpirationSeconds, "may not specify a duration larger than 2^32 seconds"))
	}
	return errs
}

// bind looks up the object that the token shall live and die with.
func (i *Issuer) bind(ctx context.Context, account *corev1.ServiceAccount, ref *authenticationv1.BoundObjectReference) (boundTo, error) {
	b := boundTo{Namespace: account.Namespace, ServiceAccount: objectRef{account.Name, account.UID}}
	if ref == nil {
		return b, nil
	}
	switch ref.APIVersion + " " + ref.Kind {
	case "v1 Pod":
		pod, err := get[*corev1.Pod](ctx, i.config.Reader, core("pods"), account.Namespace, ref.Name)
		if err != nil {
			return b, err
		}
		if pod.Spec.ServiceAccountName != account.Name {
			return b, apierrors.NewBadRequest(fmt.Sprintf("cannot bind token for serviceaccount %q to pod running with different serviceaccount name.", account.Name))
		}
		b.Pod = &objectRef{pod.Name, pod.UID}
		if name := pod.Spec.NodeName; name != "" {
			b.Node = &objectRef{Name: name}
			if node, err := get[*corev1.Node](ctx, i.config.Reader, core("nodes"), "", name); err == nil {
				b.Node.UID = node.UID
			} else if !apierrors.IsNotFound(err) {
				return b, err
			}
		}
		return b, sameUID(ref, pod.UID)
	case "v1 Secret":
		secret, err := get[*corev1.Secret](ctx, i.config.Reader, core("secrets"), account.Namespace, ref.Name)
		if err != nil {
			return b, err
		}
		b.Secret = &objectRef{secret.Name, secret.UID}
		return b, sameUID(ref, secret.UID)
	case "v1 Node":
		node, err := get[*corev1.Node](ctx, i.config.Reader, core("nodes"), "", ref.Name)
		if err != nil {
			return b, err
		}
		b.Node = &objectRef{node.Name, node.UID}
		return b, sameUID(ref, node.UID)
	}
	return b, apierrors.NewBadRequest(fmt.Sprintf("cannot bind token to object of type %s", schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)))
}

func sameUID(ref *authenticationv1.BoundObjectReference, uid types.UID) error {
	if ref.UID == "" || ref.UID == uid {
		return nil
	}
	return apierrors.NewConflict(schema.GroupResource{Resource: ref.Kind}, ref.Name, fmt.Errorf("the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated", ref.UID))
}

func (i *Issuer) forAPIServer(audiences []string) bool {
	for _, a := range audiences {
		if !slices.Contains(i.config.Audiences, a) {
			return false
		}
	}
	return true
}

func (i *Issuer) sign(c claims) (string, error) {
	token := jwt.NewWithClaims(i.keys[0].method, c)
	token.Header = map[string]any{"alg": i.keys[0].method.Alg(), "kid": i.keys[0].id}
	return token.SignedString(i.config.Key)
}

// LegacyToken signs the endless token that a secret of type
// kubernetes.io/service-account-token holds.
func (i *Issuer) LegacyToken(account *corev1.ServiceAccount, secret string) (string, error) {
	token := jwt.NewWithClaims(i.keys[0].method, jwt.MapClaims{
		"iss":           legacyIssuer,
		"sub":           "system:serviceaccount:" + account.Namespace + ":" + account.Name,
		legacyNamespace: account.Namespace,
		legacySecret:    secret,
		legacyName:      account.Name,
		legacyUID:       string(account.UID),
	})
	token.Header = map[string]any{"alg": i.keys[0].method.Alg(), "kid": i.keys[0].id}
	return token.SignedString(i.config.Key)
}

// get reads an object of a known type.
func get[T any](ctx context.Context, r Reader, resource schema.GroupResource, namespace, name string) (T, error) {
	var none T
	obj, err := r.Get(ctx, resource, namespace, name)
	if err != nil {
		return none, err
	}
	typed, ok := obj.(T)
	if !ok {
		return none, fmt.Errorf("%s %s: stored as %T", resource, strings.TrimPrefix(namespace+"/"+name, "/"), obj)
	}
	return typed, nil
}

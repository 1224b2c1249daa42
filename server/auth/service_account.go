package auth

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/golang-jwt/jwt/v5"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"orrery.dev/server/audit"
)

// Claims of tokens that live in secrets.
const (
	legacyIssuer    = "kubernetes/serviceaccount"
	legacyNamespace = "kubernetes.io/serviceaccount/namespace"
	legacySecret    = "kubernetes.io/serviceaccount/secret.name"
	legacyName      = "kubernetes.io/serviceaccount/service-account.name"
	legacyUID       = "kubernetes.io/serviceaccount/service-account.uid"
)

// deletionLeeway lets a pod that is being deleted use its token a little longer.
const deletionLeeway = 60 * time.Second

// AuthenticateToken implements authenticator.Token for the issuer's tokens:
// well signed, meant for an audience of ctx, in their time, and bound to objects
// that are still there. Tokens of other issuers are not ours to judge.
func (i *Issuer) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	var c jwt.RegisteredClaims
	if _, _, err := jwt.NewParser().ParseUnverified(token, &c); err != nil {
		return nil, false, nil
	}
	switch {
	case c.Issuer == legacyIssuer:
		return i.checkLegacy(ctx, token)
	case c.Issuer == i.config.URL || slices.Contains(i.config.Also, c.Issuer):
		return i.checkBound(ctx, token)
	}
	return nil, false, nil
}

// key finds the key that a token says it was signed with; one without a key ID
// is tried with all of its kind.
func (i *Issuer) key(token *jwt.Token) (any, error) {
	id, _ := token.Header["kid"].(string)
	set := jwt.VerificationKeySet{}
	for _, k := range i.keys {
		if k.method.Alg() == token.Method.Alg() && (id == "" || id == k.id) {
			set.Keys = append(set.Keys, k.public)
		}
	}
	if len(set.Keys) == 0 {
		return nil, errors.New("no key for it")
	}
	return set, nil
}

func (i *Issuer) checkBound(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	var c claims
	if _, err := jwt.NewParser(jwt.WithExpirationRequired()).ParseWithClaims(token, &c, i.key); err != nil {
		return nil, false, tokenError(err)
	}
	wanted, ok := authenticator.AudiencesFrom(ctx)
	if !ok {
		wanted = i.config.Audiences
	}
	audiences := authenticator.Audiences(c.Audience).Intersect(wanted)
	if len(audiences) == 0 {
		return nil, false, fmt.Errorf("token audiences %q is invalid for the target audiences %q", []string(c.Audience), []string(wanted))
	}
	b := c.Kubernetes
	if b.Namespace == "" || c.Subject != serviceaccount.MakeUsername(b.Namespace, b.ServiceAccount.Name) {
		return nil, false, errors.New("token subject does not match its service account")
	}
	if err := i.alive(ctx, b); err != nil {
		return nil, false, err
	}
	who := serviceaccount.ServiceAccountInfo{Namespace: b.Namespace, Name: b.ServiceAccount.Name, UID: string(b.ServiceAccount.UID)}
	if c.ID != "" {
		who.CredentialID = "JTI=" + c.ID
	}
	if b.Pod != nil {
		who.PodName, who.PodUID = b.Pod.Name, string(b.Pod.UID)
	}
	if b.Node != nil {
		who.NodeName, who.NodeUID = b.Node.Name, string(b.Node.UID)
	}
	if b.WarnAfter != nil && time.Now().After(b.WarnAfter.Time) {
		late := time.Now().Unix() - b.WarnAfter.Unix()
		audit.Annotate(ctx, "authentication.k8s.io/stale-token", fmt.Sprintf("subject: %s, seconds after warning threshold: %d", c.Subject, late))
		i.uses.stale.Inc()
	} else {
		i.uses.valid.Inc()
	}
	return &authenticator.Response{User: who.UserInfo(), Audiences: audiences}, true, nil
}

// alive checks that all that a token is bound to still exists and is the same.
func (i *Issuer) alive(ctx context.Context, b boundTo) error {
	if err := i.exists(ctx, core("serviceaccounts"), b.Namespace, b.ServiceAccount); err != nil {
		return err
	}
	switch {
	case b.Pod != nil:
		return i.exists(ctx, core("pods"), b.Namespace, *b.Pod)
	case b.Secret != nil:
		return i.exists(ctx, core("secrets"), b.Namespace, *b.Secret)
	case b.Node != nil: // beside a pod it only tells where that runs
		return i.exists(ctx, core("nodes"), "", *b.Node)
	}
	return nil
}

var errInvalidated = errors.New("service account token has been invalidated")

func (i *Issuer) exists(ctx context.Context, resource schema.GroupResource, namespace string, ref objectRef) error {
	obj, err := get[metav1.Object](ctx, i.config.Reader, resource, namespace, ref.Name)
	if apierrors.IsNotFound(err) {
		return errInvalidated
	}
	if err != nil {
		return err
	}
	if ref.UID != obj.GetUID() {
		return errInvalidated
	}
	if d := obj.GetDeletionTimestamp(); d != nil && d.Add(deletionLeeway).Before(time.Now()) {
		return errInvalidated
	}
	return nil
}

type legacyClaims struct {
	jwt.RegisteredClaims
	Namespace string    `json:"kubernetes.io/serviceaccount/namespace"`
	Secret    string    `json:"kubernetes.io/serviceaccount/secret.name"`
	Name      string    `json:"kubernetes.io/serviceaccount/service-account.name"`
	UID       types.UID `json:"kubernetes.io/serviceaccount/service-account.uid"`
}

// checkLegacy checks a token that lives in a secret: it is good as long as that
// very secret holds it, and for the API server only.
func (i *Issuer) checkLegacy(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	var c legacyClaims
	if _, err := jwt.NewParser().ParseWithClaims(token, &c, i.key); err != nil {
		return nil, false, tokenError(err)
	}
	wanted, ok := authenticator.AudiencesFrom(ctx)
	if !ok {
		wanted = i.config.Audiences
	}
	audiences := authenticator.Audiences(i.config.Audiences).Intersect(wanted)
	if len(audiences) == 0 {
		return nil, false, fmt.Errorf("token audiences %q is invalid for the target audiences %q", i.config.Audiences, []string(wanted))
	}
	if c.Namespace == "" || c.Secret == "" || c.Subject != serviceaccount.MakeUsername(c.Namespace, c.Name) {
		return nil, false, errors.New("token claims are incomplete")
	}
	secret, err := get[*corev1.Secret](ctx, i.config.Reader, core("secrets"), c.Namespace, c.Secret)
	if apierrors.IsNotFound(err) {
		return nil, false, errInvalidated
	}
	if err != nil {
		return nil, false, err
	}
	if secret.DeletionTimestamp != nil || subtle.ConstantTimeCompare(secret.Data[corev1.ServiceAccountTokenKey], []byte(token)) != 1 {
		return nil, false, errInvalidated
	}
	if err := i.exists(ctx, core("serviceaccounts"), c.Namespace, objectRef{c.Name, c.UID}); err != nil {
		return nil, false, err
	}
	i.noteUse(ctx, secret)
	if secret.Labels[invalidSinceLabel] != "" {
		audit.Annotate(ctx, "authentication.k8s.io/legacy-token-invalidated", secret.Name+"/"+secret.Namespace)
		i.uses.autoEnded.Inc()
		return nil, false, fmt.Errorf("the token in secret %s/%s for service account %s/%s has been marked invalid. Use tokens from the TokenRequest API or manually created secret-based tokens, "+
			"or remove the '%s' label from the secret to temporarily allow use of this token", c.Namespace, c.Secret, c.Namespace, c.Name, invalidSinceLabel)
	}
	i.annotateLegacy(ctx, c.Subject, secret, c.Name)
	who := serviceaccount.ServiceAccountInfo{Namespace: c.Namespace, Name: c.Name, UID: string(c.UID)}
	return &authenticator.Response{User: who.UserInfo(), Audiences: audiences}, true, nil
}

// Labels of Secrets with tokens, with a day as their value. By the first the
// cleaner of such Secrets knows that one is in use; the second is how it begins
// to take away one that is not.
const (
	lastUsedLabel     = "kubernetes.io/legacy-token-last-used"
	invalidSinceLabel = "kubernetes.io/legacy-token-invalid-since"
)

// noteUse labels a secret with the day. A use that can't be noted is none the
// less good: there will be others.
func (i *Issuer) noteUse(ctx context.Context, secret *corev1.Secret) {
	now := time.Now().UTC()
	today, tomorrow := now.Format(time.DateOnly), now.AddDate(0, 0, 1).Format(time.DateOnly)
	// Another server's clock may be ahead.
	if last := secret.Labels[lastUsedLabel]; i.config.Writer == nil || last == today || last == tomorrow {
		return
	}
	_, err := i.config.Writer.Update(ctx, core("secrets"), secret.Namespace, secret.Name, func(current runtime.Object) (runtime.Object, error) {
		if s, ok := current.(*corev1.Secret); ok && s.UID == secret.UID {
			metav1.SetMetaDataLabel(&s.ObjectMeta, lastUsedLabel, today)
		}
		return current, nil
	})
	if err != nil {
		slog.Warn("use of a token not noted", "secret", secret.Namespace+"/"+secret.Name, "err", err)
	}
}

// annotateLegacy tells the audit log of a token from a secret, and whether the
// secret was made by hand or, long ago, by a controller.
func (i *Issuer) annotateLegacy(ctx context.Context, subject string, secret *corev1.Secret, accountName string) {
	kind, uses := "manual", i.uses.manual
	account, err := get[*corev1.ServiceAccount](ctx, i.config.Reader, core("serviceaccounts"), secret.Namespace, accountName)
	if err == nil && slices.ContainsFunc(account.Secrets, func(ref corev1.ObjectReference) bool { return ref.Name == secret.Name }) {
		kind, uses = "autogenerated", i.uses.auto
	}
	i.uses.legacy.Inc()
	uses.Inc()
	audit.Annotate(ctx, "authentication.k8s.io/legacy-token", subject)
	audit.Annotate(ctx, "authentication.k8s.io/legacy-token-"+kind+"-secret", secret.Name)
}

// tokenError puts the reasons that users meet into upstream's words.
func tokenError(err error) error {
	switch {
	case errors.Is(err, jwt.ErrTokenExpired):
		return errors.New("service account token has expired")
	case errors.Is(err, jwt.ErrTokenNotValidYet):
		return errors.New("service account token is not valid yet")
	case errors.Is(err, jwt.ErrTokenSignatureInvalid): // in the words of upstream's library
		return errors.New("go-jose/go-jose: error in cryptographic primitive")
	case errors.Is(err, jwt.ErrTokenUnverifiable):
		return errors.New("invalid signature, no keys found")
	}
	return fmt.Errorf("token could not be validated: %w", err)
}

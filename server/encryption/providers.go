package encryption

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"errors"
	"fmt"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/storage/value"
	aescipher "k8s.io/apiserver/pkg/storage/value/encrypt/aes"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/apiserver/pkg/storage/value/encrypt/secretbox"
)

// What values begin with, by provider. The name of the key or of the plugin
// follows.
const (
	prefixCBC       = "k8s:enc:aescbc:v1:"
	prefixGCM       = "k8s:enc:aesgcm:v1:"
	prefixSecretbox = "k8s:enc:secretbox:v1:"
	prefixKMS       = "k8s:enc:kms:v2:"
)

// providers makes the providers of one rule, in order. Plugins are added to the
// set; ctx ends their connections.
func (s *set) providers(ctx context.Context, configs []apiserver.ProviderConfiguration, serverID string) ([]value.PrefixTransformer, error) {
	var all []value.PrefixTransformer
	for _, c := range configs {
		var t value.Transformer
		var err error
		prefix := ""
		switch {
		case c.AESGCM != nil:
			prefix = prefixGCM
			t, err = byKey("AES", c.AESGCM.Keys, func(key []byte) (value.Transformer, error) {
				return withAES(key, aescipher.NewGCMTransformer)
			})
		case c.AESCBC != nil:
			prefix = prefixCBC
			t, err = byKey("AES", c.AESCBC.Keys, func(key []byte) (value.Transformer, error) {
				return withAES(key, func(b cipher.Block) (value.Transformer, error) { return aescipher.NewCBCTransformer(b), nil })
			})
		case c.Secretbox != nil:
			prefix = prefixSecretbox
			t, err = byKey("Secretbox", c.Secretbox.Keys, withSecretbox)
		case c.KMS != nil:
			var p *plugin
			if p, err = newPlugin(ctx, c.KMS, serverID); err == nil {
				s.plugins = append(s.plugins, p)
				prefix, t = prefixKMS+c.KMS.Name+":", p.transformer()
			}
		case c.Identity != nil:
			t = identity.NewEncryptCheckTransformer()
		default:
			err = errors.New("provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity")
		}
		if err != nil {
			return nil, err
		}
		all = append(all, value.PrefixTransformer{Prefix: []byte(prefix), Transformer: t})
	}
	return all, nil
}

// byKey writes with the first key and reads with the one that the value names.
func byKey(kind string, keys []apiserver.Key, with func(key []byte) (value.Transformer, error)) (value.Transformer, error) {
	var all []value.PrefixTransformer
	for _, k := range keys {
		secret, err := base64.StdEncoding.DecodeString(k.Secret)
		if err != nil {
			return nil, fmt.Errorf("could not obtain secret for named key %s: %w", k.Name, err)
		}
		t, err := with(secret)
		if err != nil {
			return nil, fmt.Errorf("key %s: %w", k.Name, err)
		}
		all = append(all, value.PrefixTransformer{Prefix: []byte(k.Name + ":"), Transformer: t})
	}
	return value.NewPrefixTransformers(fmt.Errorf("no matching key was found for the provided %s transformer", kind), all...), nil
}

func withAES(key []byte, mode func(cipher.Block) (value.Transformer, error)) (value.Transformer, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return mode(block)
}

func withSecretbox(key []byte) (value.Transformer, error) {
	if len(key) != 32 {
		return nil, fmt.Errorf("expected key size 32 for secretbox provider, got %d", len(key))
	}
	return secretbox.NewSecretboxTransformer([32]byte(key)), nil
}

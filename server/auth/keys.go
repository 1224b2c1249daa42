package auth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"

	"github.com/golang-jwt/jwt/v5"
)

// verificationKey is a public key that tokens are checked with.
type verificationKey struct {
	id     string
	public crypto.PublicKey
	method jwt.SigningMethod
}

func newVerificationKey(public crypto.PublicKey) (verificationKey, error) {
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return verificationKey{}, err
	}
	sum := sha256.Sum256(der)
	key := verificationKey{id: base64.RawURLEncoding.EncodeToString(sum[:]), public: public}
	switch public := public.(type) {
	case *rsa.PublicKey:
		key.method = jwt.SigningMethodRS256
	case *ecdsa.PublicKey:
		switch public.Curve.Params().BitSize {
		case 256:
			key.method = jwt.SigningMethodES256
		case 384:
			key.method = jwt.SigningMethodES384
		case 521:
			key.method = jwt.SigningMethodES512
		}
	}
	if key.method == nil {
		return verificationKey{}, fmt.Errorf("a key of type %T cannot sign tokens", public)
	}
	return key, nil
}

// ParsePrivateKey reads a PEM private key, RSA or ECDSA.
func ParsePrivateKey(raw []byte) (crypto.Signer, error) {
	for block, rest := pem.Decode(raw); block != nil; block, rest = pem.Decode(rest) {
		var key any
		var err error
		switch block.Type {
		case "EC PRIVATE KEY":
			key, err = x509.ParseECPrivateKey(block.Bytes)
		case "RSA PRIVATE KEY":
			key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
		case "PRIVATE KEY":
			key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		default:
			continue // EC PARAMETERS precede a key as openssl writes it
		}
		if err != nil {
			return nil, err
		}
		if signer, ok := key.(crypto.Signer); ok {
			return signer, nil
		}
	}
	return nil, errors.New("no RSA or ECDSA private key in it")
}

// ParsePublicKeys reads every public key of a PEM file; those of certificates
// and private keys count.
func ParsePublicKeys(raw []byte) ([]crypto.PublicKey, error) {
	var keys []crypto.PublicKey
	for block, rest := pem.Decode(raw); block != nil; block, rest = pem.Decode(rest) {
		switch block.Type {
		case "CERTIFICATE":
			cert, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return nil, err
			}
			keys = append(keys, cert.PublicKey)
		case "PUBLIC KEY":
			key, err := x509.ParsePKIXPublicKey(block.Bytes)
			if err != nil {
				return nil, err
			}
			keys = append(keys, key)
		case "RSA PUBLIC KEY":
			key, err := x509.ParsePKCS1PublicKey(block.Bytes)
			if err != nil {
				return nil, err
			}
			keys = append(keys, key)
		default:
			if key, err := ParsePrivateKey(pem.EncodeToMemory(block)); err == nil {
				keys = append(keys, key.Public())
			}
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("no RSA or ECDSA public key in it")
	}
	return keys, nil
}

// webKey is a key as JSON Web Key Sets hold it.
type webKey struct {
	Use   string `json:"use"`
	Type  string `json:"kty"`
	ID    string `json:"kid"`
	Alg   string `json:"alg"`
	N     string `json:"n,omitempty"`
	E     string `json:"e,omitempty"`
	Curve string `json:"crv,omitempty"`
	X     string `json:"x,omitempty"`
	Y     string `json:"y,omitempty"`
}

func keySet(keys []verificationKey) ([]byte, error) {
	text := base64.RawURLEncoding.EncodeToString
	set := struct {
		Keys []webKey `json:"keys"`
	}{Keys: []webKey{}}
	for _, k := range keys {
		w := webKey{Use: "sig", ID: k.id, Alg: k.method.Alg()}
		switch public := k.public.(type) {
		case *rsa.PublicKey:
			w.Type, w.N, w.E = "RSA", text(public.N.Bytes()), text(big.NewInt(int64(public.E)).Bytes())
		case *ecdsa.PublicKey:
			raw, err := public.Bytes() // 4, X, Y
			if err != nil {
				return nil, err
			}
			half := (len(raw) - 1) / 2
			w.Type, w.Curve, w.X, w.Y = "EC", public.Curve.Params().Name, text(raw[1:1+half]), text(raw[1+half:])
		}
		set.Keys = append(set.Keys, w)
	}
	return json.Marshal(set)
}

package cluster

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

func readCertificate(path string) (*x509.Certificate, error) {
	all, err := certutil.CertsFromFile(path)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// readKey reads a private key in any of the forms that tools write.
func readKey(path string) (crypto.Signer, error) {
	key, err := keyutil.PrivateKeyFromFile(path)
	if err != nil {
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("read %s: a key of type %T cannot sign", path, key)
	}
	return signer, nil
}

func writePEM(path string, mode os.FileMode, kind string, der []byte) error {
	return writeFile(path, mode, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// writeFile replaces a file in one step: a reader, or a crash, sees the old
// content or the new, nothing between.
func writeFile(path string, mode os.FileMode, content []byte) (err error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// WriteIfChanged writes a file as writeFile does, unless it has that content
// already: whoever watches it is not woken for nothing.
func WriteIfChanged(path string, content []byte, mode os.FileMode) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, content) {
		return nil
	}
	return writeFile(path, mode, content)
}

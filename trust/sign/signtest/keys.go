package signtest

import (
	"context"
	"sync"

	"github.com/layerwright/layerwright/trust/sign"
)

// Password encrypts the private keys. Tests look for it where no password may be.
const Password = "correct horse"

// Pair is a key pair: in PEM, and ready to sign.
type Pair struct {
	Private, Public []byte
	Key             *sign.Key
}

// NewPair makes a pair, and panics where it can't. Encrypting takes its time: tests keep a pair by
// sync.OnceValue.
func NewPair() Pair {
	private, public, err := sign.GenerateKey([]byte(Password))
	if err != nil {
		panic(err)
	}
	key, err := LoadKey(private, []byte(Password))
	if err != nil {
		panic(err)
	}
	return Pair{Private: private, Public: public, Key: key}
}

// loaded has the keys that LoadKey has decrypted.
var loaded sync.Map

// LoadKey is sign.LoadKey for keys that many tests read: decrypting takes its time on purpose, so
// each key is decrypted once.
func LoadKey(private, password []byte) (*sign.Key, error) {
	type pair struct{ private, password string }
	this := pair{string(private), string(password)}
	if key, has := loaded.Load(this); has {
		return key.(*sign.Key), nil
	}
	key, err := sign.LoadKey(private, password)
	if err == nil {
		loaded.Store(this, key)
	}
	return key, err
}

// ID is what statuses and errors call the key.
func (p Pair) ID() string { return p.Key.Public().ID() }

// Signer signs with the key.
func (p Pair) Signer() *sign.Signer { return sign.NewSigner(Keys{One: p.Key}) }

// Keys is a sign.Keys that has one key, or says why not.
type Keys struct {
	One *sign.Key
	// More are trusted too.
	More []*sign.PublicKey
	Err  error
}

// Key is the one to sign with.
func (k Keys) Key(context.Context) (*sign.Key, error) { return k.One, k.Err }

// Trusted are the one to sign with and more.
func (k Keys) Trusted(context.Context) (sign.Trusted, error) {
	if k.Err != nil {
		return sign.Trusted{}, k.Err
	}
	return sign.Trusted{Keys: append([]*sign.PublicKey{k.One.Public()}, k.More...)}, nil
}

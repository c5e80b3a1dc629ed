package ipmi

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash"
)

// suite is a cipher suite (table 22-20): the HMAC that authenticates the
// handshake, and the length of the integrity codes. Both suites encrypt with
// AES-CBC-128.
type suite struct {
	id              int
	auth, integrity byte // algorithm numbers
	newHash         func() hash.Hash
	codeLen         int
}

const cryptAES = 0x01

// suites are the only suites ever offered. Suites 0 to 2 lack confidentiality or
// authentication, and the others use MD5 or xRC4.
var suites = []suite{
	{id: 17, auth: 0x03, integrity: 0x04, newHash: sha256.New, codeLen: 16},
	{id: 3, auth: 0x01, integrity: 0x01, newHash: sha1.New, codeLen: 12},
}

// algorithms are the numbers for authentication, integrity and encryption.
func (s suite) algorithms() [3]byte { return [3]byte{s.auth, s.integrity, cryptAES} }

func (s suite) hmac(key []byte, parts ...[]byte) []byte {
	h := hmac.New(s.newHash, key)
	for _, p := range parts {
		h.Write(p)
	}
	return h.Sum(nil)
}

// exchange is what both sides know during one handshake (section 13.20 ff.). The
// names in brackets are those of the specification.
type exchange struct {
	suite      suite
	user       string
	key        []byte // the password [Kuid]
	bmcKey     []byte // the key of the BMC [Kg]; empty means one-key login: the password is also [Kg]
	role       byte   // requested privilege, with the name-only bit [RoleM]
	consoleID  uint32 // [SIDM]
	bmcID      uint32 // [SIDC]
	consoleRnd [16]byte
	bmcRnd     [16]byte
	guid       [16]byte // System GUID [GUIDC]

	openTries map[byte]int // which try of the Open Session Request had a tag, from 1 on
	openTag   byte         // of the try whose answer is used
	hasRnd    bool         // RAKP 2 arrived for bmcID
	otherRnd  bool         // and another one, so the proof in RAKP 3 may not be right
	started   *session     // set when RAKP 3 was sent: the BMC may have opened it
	tagged    [256]bool
	tags      int // number of tags used
	unused    unusedSessions
}

// nameOnly makes the BMC find the account by its name alone, not by name and
// privilege (table 13-11). Every BMC supports that.
const nameOnly = 0x10

var errMalformed = errors.New("malformed handshake message")

func id(v uint32) []byte { return binary.LittleEndian.AppendUint32(nil, v) }

// accountField is the part of each code that names the account.
func (x *exchange) accountField() []byte {
	return append([]byte{x.role, byte(len(x.user))}, x.user...)
}

// openRequest requests a session. Privilege 0 means the highest that the BMC
// allows; RAKP 1 requests the privilege to use.
func (x *exchange) openRequest(tag byte) []byte {
	return openRequest(tag, x.consoleID, x.suite.algorithms())
}

func openRequest(tag byte, consoleID uint32, algorithms [3]byte) []byte {
	b := append([]byte{tag, 0, 0, 0}, id(consoleID)...)
	for kind, algorithm := range algorithms {
		b = append(b, byte(kind), 0, 0, 8, algorithm, 0, 0, 0)
	}
	return b
}

// answer is the common start of the three handshake answers.
type answer struct {
	tag, status byte
	consoleID   uint32
	rest        []byte
}

// parseAnswer parses the common start. A refusal may end after it, and ipmi_sim
// ends it after the status.
func parseAnswer(b []byte) (answer, error) {
	switch {
	case len(b) >= 2 && len(b) < 8 && b[1] != 0:
		return answer{tag: b[0], status: b[1]}, nil
	case len(b) < 8:
		return answer{}, errMalformed
	}
	return answer{tag: b[0], status: b[1], consoleID: binary.LittleEndian.Uint32(b[4:]), rest: b[8:]}, nil
}

// isOurs reports whether a is for this exchange. A BMC that does not know the
// session refuses with session id 0.
func (x *exchange) isOurs(a answer) bool {
	return a.consoleID == x.consoleID || a.status != 0 && a.consoleID == 0
}

// isUnaddressed reports whether a is a refusal that names neither request nor
// session. OpenBMC sends nothing but zeros and the status. Nothing authenticates a
// refusal before the session exists, so it may be forged: it ends the login, and
// does nothing else.
func (x *exchange) isUnaddressed(a answer) bool { return a.status != 0 && a.tag == 0 && x.isOurs(a) }

// acceptOpen takes the session id from an Open Session Response. The algorithms
// must be the requested ones: a BMC that answers with others, such as none, would
// create an unprotected session.
func (x *exchange) acceptOpen(rest []byte) error { return x.acceptOpenWith(rest, x.suite.algorithms()) }

func (x *exchange) acceptOpenWith(rest []byte, algorithms [3]byte) error {
	if len(rest) < 28 || openedID(rest) == 0 {
		return errMalformed
	}
	x.bmcID = openedID(rest)
	for kind, algorithm := range algorithms {
		p := rest[4+8*kind:]
		if p[0] != byte(kind) || p[3] != 8 || p[4]&0x3f != algorithm {
			return errOtherAlgorithms
		}
	}
	return nil
}

// openedID is the BMC's session id in an Open Session Response; 0 without one.
func openedID(rest []byte) uint32 {
	if len(rest) < 4 {
		return 0
	}
	return binary.LittleEndian.Uint32(rest)
}

func (x *exchange) rakp1(tag byte) []byte { return x.rakp1For(tag, x.bmcID) }

func (x *exchange) rakp1For(tag byte, bmcID uint32) []byte {
	b := append([]byte{tag, 0, 0, 0}, id(bmcID)...)
	b = append(b, x.consoleRnd[:]...)
	b = append(b, x.role, 0, 0, byte(len(x.user)))
	return append(b, x.user...)
}

// acceptRAKP2 takes the BMC's random number and GUID if the code proves that the
// BMC knows the password.
func (x *exchange) acceptRAKP2(rest []byte) error {
	if len(rest) != 32+x.suite.newHash().Size() {
		return errMalformed
	}
	x.hasRnd = true
	copy(x.bmcRnd[:], rest)
	copy(x.guid[:], rest[16:])
	want := x.suite.hmac(x.key, id(x.consoleID), id(x.bmcID), x.consoleRnd[:], x.bmcRnd[:], x.guid[:], x.accountField())
	if !hmac.Equal(want, rest[32:]) {
		return errWrongPassword
	}
	return nil
}

func (x *exchange) rakp3(tag byte) []byte {
	b := append([]byte{tag, 0, 0, 0}, id(x.bmcID)...)
	return append(b, x.suite.hmac(x.key, x.bmcRnd[:], id(x.consoleID), x.accountField())...)
}

// keys derives the keys of the session: the session integrity key, K1 for
// integrity and K2 for encryption (section 13.31 f.).
func (x *exchange) keys() (sik, k1, k2 []byte) {
	key := x.bmcKey
	if len(key) == 0 {
		key = x.key
	}
	sik = x.suite.hmac(key, x.consoleRnd[:], x.bmcRnd[:], x.accountField())
	constant := func(v byte) []byte { return bytes.Repeat([]byte{v}, 20) }
	return sik, x.suite.hmac(sik, constant(1)), x.suite.hmac(sik, constant(2))
}

// checkRAKP4 checks that the BMC derived the same session key.
func (x *exchange) checkRAKP4(rest, sik []byte) error {
	want := x.suite.hmac(sik, x.consoleRnd[:], id(x.bmcID), x.guid[:])[:x.suite.codeLen]
	switch {
	case hmac.Equal(want, rest):
		return nil
	case len(x.bmcKey) == 0:
		return errNoBMCKey
	}
	return errOtherBMCKey
}

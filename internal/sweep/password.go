package sweep

import (
	"strings"

	"github.com/fenced/fenced/internal/bmc"
)

// defaultPasswords are the factory passwords of BMCs, from the vendors' manuals
// and public lists of default credentials. They are compared with the
// configuration and never tried on a BMC.
var defaultPasswords = map[string]bool{
	"0penBmc": true, "ADMIN": true, "Admin@9000": true, "Admin@123": true, "Administrator": true, "Changeme": true,
	"HPInvent": true, "Huawei12#$": true, "PASSW0RD": true, "PASSWORD": true, "Passw0rd": true, "Password": true,
	"Password1": true, "admin": true, "admin123": true, "advcomm500349": true, "alpine": true, "amiadmin": true,
	"calvin": true, "changeme": true, "cmb9.admin": true, "default": true, "insecure": true, "password": true, "password1": true,
	"root": true, "superuser": true, "supervisor": true, "testpass": true, "welcome": true, "123456": true, "12345678": true,
}

// weakPassword returns what is weak about a device's configured credentials; ""
// for nothing. The text never contains them. // I25
func weakPassword(d bmc.Device) string {
	text := d.Password.Reveal()
	switch {
	case text == "" && d.Driver.Descriptor().AccountOptional:
		return ""
	case text == "":
		return "the configured password is empty"
	case defaultPasswords[text]:
		return "the configured password is a vendor's factory password"
	case strings.EqualFold(text, d.Username):
		return "the configured password is the user name"
	}
	return ""
}

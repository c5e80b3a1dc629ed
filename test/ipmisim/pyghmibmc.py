"""The BMC server of pyghmi with the chassis of this package: pyghmibmc.py DIRECTORY.

It is what virtualbmc and fakebmc are. It ends with a traceback where pyghmi does.
"""
import json
import os
import subprocess
import sys
import types
import uuid

# What pyghmi as a client knows about makers is a third of what it loads, and a BMC asks for none of it.
lookup = sys.modules["pyghmi.ipmi.oem.lookup"] = types.ModuleType("lookup")
lookup.get_oem_handler = None

from pyghmi.ipmi import bmc


class ChassisBmc(bmc.Bmc):
    """A BMC whose power is that of chassis.sh."""

    def __init__(self, directory):
        self.directory = directory
        with open(os.path.join(directory, "config.json"), encoding="utf-8") as f:
            config = json.load(f)
        super().__init__({config["user"]: config["password"]}, port=int(config["port"]),
                         bmcuuid=uuid.UUID(config["guid"]) if config["guid"] else None, address=config["address"])
        if config["kg"]:
            self.set_kg(config["kg"])

    def chassis(self, *words, out=subprocess.DEVNULL):
        script, power = (os.path.join(self.directory, n) for n in ("chassis.sh", "power"))
        return subprocess.run([script, power, *words], check=True, stdout=out, text=True).stdout

    def get_power_state(self):
        return int(self.chassis("get", "power", out=subprocess.PIPE).strip().removeprefix("power:"))

    def power_off(self):
        # Not with a pipe: what the script leaves in the background would hold it.
        self.chassis("set", "power", "0")

    def power_on(self):
        self.chassis("set", "power", "1")


ChassisBmc(sys.argv[1]).listen()

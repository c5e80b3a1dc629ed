"""The BMC server of pyghmi with the chassis of this package: pyghmi.py DIRECTORY.

It is what virtualbmc and fakebmc are. It ends with a traceback where pyghmi does.
"""
import json
import os
import subprocess
import sys
import uuid

from pyghmi.ipmi import bmc


class ChassisBmc(bmc.Bmc):
    """A BMC whose power is that of chassis.sh."""

    def __init__(self, directory):
        self.directory = directory
        with open(os.path.join(directory, "config.json"), encoding="utf-8") as f:
            config = json.load(f)
        super().__init__({config["user"]: config["password"]}, port=int(config["port"]),
                         bmcuuid=uuid.UUID(config["guid"]), address=config["address"])
        if config["kg"]:
            self.set_kg(config["kg"])

    def chassis(self, *words):
        script, power = (os.path.join(self.directory, n) for n in ("chassis.sh", "power"))
        return subprocess.run([script, power, *words], check=True, stdout=subprocess.PIPE, text=True).stdout

    def get_power_state(self):
        return int(self.chassis("get", "power").strip().removeprefix("power:"))

    def power_off(self):
        self.chassis("set", "power", "0")

    def power_on(self):
        self.chassis("set", "power", "1")


ChassisBmc(sys.argv[1]).listen()

"""That two hosts are what the other tests take them for."""

import socket

from far_host import PORT
from lab import PATIENCE, TwoHosts, output


class Links(TwoHosts):
    def test_either_rail_and_the_third_link_lead_to_the_other_host(self):
        for i in range(3):
            socket.create_connection((f"10.77.{i}.1", PORT), PATIENCE).close()
        self.assertIn("10.77.0.1", self.there("ip", "-brief", "address"))
        self.assertNotIn("10.77.0.1", output("ip", "-brief", "address"))

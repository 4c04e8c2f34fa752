"""An RC requester on a raw socket whose IPv4 Identifications count up, as those of rxe and of adapters do, and somebody who
sends under its address knowing nothing but the two addresses. id-window-device.test.ts runs it.

The requester sends SENDs of one packet with new PSNs and repeats each until it is acknowledged, TRIES times at most. The
forger's packets are right but for their destination QPN; their Identifications count in four places of his own, and leap.

Arguments: own address, address of the device, QPN of the device, own QPN, first PSN, seconds between tries, messages, forge
(0 or 1). Prints JSON.
"""
import json
import select
import socket
import struct
import sys
import time
import zlib

OWN, DEVICE = sys.argv[1:3]
QPN, OWN_QPN, PSN = map(int, sys.argv[3:6])
WAIT, MESSAGES, FORGE = float(sys.argv[6]), int(sys.argv[7]), int(sys.argv[8])
TRIES = 8  # retry_cnt 7
ROCE_PORT = 4791

raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
heard = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
heard.bind((OWN, ROCE_PORT))
heard.setblocking(False)


def send(identification, qpn, psn, payload):
    """One SEND Only with AckReq. IBTA vol 1 Annex A17.3.3 has what the ICRC covers, and how it is masked."""
    bth = struct.pack("!BBHII", 4, 0x40, 0xFFFF, qpn, 1 << 31 | psn)
    udp_length = 8 + len(bth) + len(payload) + 4
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + udp_length, identification, 0x4000, 64, 17, 0,
                     socket.inet_aton(OWN), socket.inet_aton(DEVICE))
    udp = struct.pack("!HHHH", 49999, ROCE_PORT, udp_length, 0)
    masked_ip, masked_udp, masked_bth = bytearray(ip), bytearray(udp), bytearray(bth)
    masked_ip[1] = masked_ip[8] = masked_ip[10] = masked_ip[11] = 0xFF
    masked_udp[6] = masked_udp[7] = 0xFF
    masked_bth[4] = 0xFF
    icrc = zlib.crc32(b"\xff" * 8 + masked_ip + masked_udp + masked_bth + payload)
    raw.sendto(ip + udp + bth + payload + struct.pack("<I", icrc), (DEVICE, 0))


identification = 20000


def acknowledged(psn, until, meanwhile):
    while time.monotonic() < until:
        if select.select([heard], [], [], 0.02)[0]:
            packet = heard.recv(2048)
            acked = struct.unpack("!I", packet[8:12])[0] & 0xFFFFFF
            if packet[0] == 0x11 and (acked - psn) & 0xFFFFFF < 0x800000:
                return True
        meanwhile()
    return False


def request(number, meanwhile):
    """The tries that the message took; 0 if the connection is dead."""
    global identification
    psn = (PSN + number) & 0xFFFFFF
    for tries in range(1, TRIES + 1):
        identification = (identification + 1) & 0xFFFF
        send(identification, QPN, psn, b"m%03d" % number)
        if acknowledged(psn, time.monotonic() + WAIT, meanwhile):
            return tries
    return 0


class Forger:
    def __init__(self):
        self.counters = [30000, 37000, 44000, 51000]
        self.sent = self.turn = self.leap = 0
        self.next_count = self.next_leap = 0.0

    def forge(self, chosen):
        send(chosen & 0xFFFF, 0xABCDEF, 0, b"xxxx")
        self.sent += 1

    def count(self, place):
        self.counters[place] += 1
        self.forge(self.counters[place])

    def begin(self):
        for place in range(4):
            self.count(place)
            self.count(place)
            time.sleep(0.13)

    def meanwhile(self):
        now = time.monotonic()
        if now >= self.next_count:
            self.next_count = now + 0.04
            self.turn = (self.turn + 1) % 4
            self.count(self.turn)
        if now >= self.next_leap:
            self.next_leap = now + 1 / 9
            self.leap = (self.leap + 2000) % 15000
            self.forge(300 + self.leap)


settled = [request(number, lambda: None) for number in range(10)]
forger = Forger()
if FORGE:
    forger.begin()
tries = []
for number in range(10, 10 + MESSAGES):
    tries.append(request(number, forger.meanwhile if FORGE else lambda: None))
    if tries[-1] == 0:
        break
    if FORGE:
        forger.meanwhile()
    time.sleep(0.05)
print(json.dumps({"settled": settled, "tries": tries, "forged": forger.sent}))

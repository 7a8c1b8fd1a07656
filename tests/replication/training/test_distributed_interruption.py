import os
import signal
import subprocess
import sys
import threading

import pytest

from replication.training.distributed import SIGNALS, Interruption, shielded

PRINT_BLOCKED = "import signal; print(*sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])))"


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_noted_and_the_handlers_come_back(number):
    before = [signal.getsignal(each) for each in SIGNALS]
    with Interruption() as interruption:
        assert interruption.signal == 0
        os.kill(os.getpid(), number)
        assert interruption.signal == number
    assert [signal.getsignal(each) for each in SIGNALS] == before


def test_the_handlers_come_back_after_an_error():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(RuntimeError), Interruption():
        raise RuntimeError
    assert signal.getsignal(signal.SIGTERM) is before


def test_outside_the_main_thread_it_listens_to_nothing():
    seen = []

    def work():
        with Interruption() as interruption:
            seen.append(interruption.signal)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [0]


def blocked_in_a_child() -> set[int]:
    answer = subprocess.run([sys.executable, "-c", PRINT_BLOCKED], capture_output=True, text=True)
    return {int(number) for number in answer.stdout.split()}


def test_processes_started_in_the_shield_never_see_the_signals():
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    with shielded():
        inside = blocked_in_a_child()
    assert set(SIGNALS) <= inside
    assert not set(SIGNALS) & blocked_in_a_child()
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before

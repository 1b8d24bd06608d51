import os
import signal
import threading

import pytest

from qkv.core.interrupt import Interrupt


@pytest.mark.usefixtures("heeds_hangup")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_asks_and_the_old_handlers_come_back(number):
    before = signal.getsignal(number)
    said: list[str] = []
    with Interrupt(said.append) as interrupt:
        assert not interrupt.requested
        os.kill(os.getpid(), number)
        assert interrupt.requested and "saving" in said[0]
        os.kill(os.getpid(), signal.SIGTERM)
        assert len(said) == 1
    assert signal.getsignal(number) == before


def test_a_second_ctrl_c_stops_at_once():
    with pytest.raises(KeyboardInterrupt), Interrupt(lambda text: None):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)


def test_elsewhere_than_in_the_main_thread_it_does_nothing():
    before, entered = signal.getsignal(signal.SIGINT), []

    def other() -> None:
        with Interrupt(lambda text: None) as interrupt:
            entered.append(interrupt.requested)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert entered == [False] and signal.getsignal(signal.SIGINT) == before


def test_a_hangup_that_is_ignored_stays_so():
    """As under `nohup`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupt(lambda text: None) as interrupt:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not interrupt.requested
    finally:
        signal.signal(signal.SIGHUP, before)

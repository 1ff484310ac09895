"""The flow diagram of loans between departments."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from quotas.board.flow import GAP, LEAST, flow
from quotas.board.history import Loan, running_loans
from quotas.board.usage_now import read
from quotas.models import ClaimState, LedgerEntry
from tests import builders as make

pytestmark = pytest.mark.django_db
ENDS = re.compile(r"M0,([\d.]+)C.* 100,([\d.]+)V([\d.]+)C.* 0,([\d.]+)Z")


def lent(pool, lender, borrower, units, state=ClaimState.HOLDING):
    make.holding(borrower, pool, borrowed={lender: units}, state=state)


def test_pool_without_loans_has_no_diagram():
    pool, vision = make.pool(cards=8), make.department("vision")
    make.holding(vision, pool, own=2)
    assert running_loans(read([pool])) == []
    assert flow([]) is None
    assert flow([Loan(pool, vision, None)]) is None  # the loan has ended


def test_parties_are_sorted_by_size_and_ribbons_fill_both_sides():
    pool = make.pool(cards=32)
    vision, nlp, biology = (make.department(name) for name in ("vision", "nlp", "biology"))
    lent(pool, vision, biology, 6)
    lent(pool, vision, nlp, 2, ClaimState.LEAVING)
    lent(pool, None, biology, 4)
    diagram = flow(running_loans(read([pool])))
    assert diagram is not None
    assert [(party.department, party.units) for party in diagram.lenders] == [(vision, 8), (None, 4)]
    assert [(party.department, party.units) for party in diagram.borrowers] == [(biology, 10), (nlp, 2)]
    assert [(each.units, each.leaving) for each in diagram.ribbons] == [(6, False), (2, True), (4, False)]
    for side in (diagram.lenders, diagram.borrowers):
        assert all(party.height >= LEAST for party in side)
        assert [party.y for party in side[1:]] == [before.y + before.height + GAP for before in side[:-1]]
        assert side[-1].y + side[-1].height <= diagram.height
    ends = [tuple(map(float, ENDS.match(ribbon.path).groups())) for ribbon in diagram.ribbons]
    left, right = [(end[0], end[3]) for end in ends], [(end[1], end[2]) for end in ends]
    for side, parts in ((diagram.lenders, left), (diagram.borrowers, right)):
        for party in side:
            inside = sorted(part for part in parts if party.y - 0.1 <= part[0] < party.y + party.height - 0.1)
            assert inside[0][0] == pytest.approx(party.y, abs=0.1)
            assert inside[-1][1] == pytest.approx(party.y + party.height, abs=0.1)
            assert [one[1] for one in inside[:-1]] == pytest.approx([one[0] for one in inside[1:]], abs=0.1)


def test_partly_recalled_loan_is_drawn_as_two_ribbons():
    pool, vision, nlp = make.pool(cards=8), make.department("vision"), make.department("nlp")
    lent(pool, vision, nlp, 3)
    lent(pool, vision, nlp, 1, ClaimState.LEAVING)
    [loan] = running_loans(read([pool]))
    assert (loan.units, loan.leaving) == (4, 1)
    assert [(each.units, each.leaving) for each in flow([loan]).ribbons] == [(3, False), (1, True)]


def test_pool_and_department_pages_also_list_loans_as_text(client: Client):
    pool, vision, nlp = make.pool("a100", cards=8), make.department("vision"), make.department("nlp")
    for department in (vision, nlp):
        make.quota(department, pool, 4)
    client.force_login(make.member(vision))
    page = client.get("/pools/a100/").content.decode()
    assert "Nothing is lent in this pool now." in page
    lent(pool, vision, nlp, 2)
    assert LedgerEntry.objects.filter(own=False, ended_at=None).count() == 1
    for address in ("/pools/a100/", "/d/vision/"):
        page = client.get(address).content.decode()
        assert "<li>Vision → Nlp: 2 cards</li>" in page, address
        assert page.count('class="flow-ribbon"') >= 1
